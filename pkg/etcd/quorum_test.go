package etcd_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestAllows names members by a letter: v votes and works, d votes and is dead, u votes and never started, l is a
// learner in sync, b one that is behind, s one that is sick. The change is about the first of the letter.
func TestAllows(t *testing.T) {
	for _, test := range []struct {
		members string
		change  etcd.Change
		of      string
		want    string // empty: it is allowed
		advice  string
	}{
		{"vvv", etcd.Removal, "v", "", ""},
		{"vvd", etcd.Removal, "d", "", ""}, // which helps
		{"vvd", etcd.Removal, "v", "3 members vote, 2 are healthy; without node1 1 of 2 would be left: a majority is 2", "bring up node3 first, or remove what is gone for good"},
		{"vvu", etcd.Removal, "u", "", ""},
		{"vvvd", etcd.Removal, "v", "", ""},
		{"vvvdd", etcd.Removal, "v", "5 members vote, 3 are healthy; without node1 2 of 4 would be left: a majority is 3", "bring up node4, node5 first, or remove what is gone for good"},
		{"vvvdd", etcd.Removal, "d", "", ""},
		{"vdd", etcd.Removal, "d", "3 members vote, 1 is healthy: a majority is 2, and without one nothing can be changed", "bring up enough of them: node2, node3"},
		{"vv", etcd.Removal, "v", "", ""},
		{"vu", etcd.Removal, "u", "2 members vote, 1 is healthy: a majority is 2, and without one nothing can be changed", "bring up enough of them: https://10.0.0.2:2380"},
		{"v", etcd.Removal, "v", "node1 is the only member that votes", ""},
		{"vl", etcd.Removal, "v", "node1 is the only member that votes", ""},
		{"vvs", etcd.Removal, "s", "", ""},
		{"vdl", etcd.Removal, "l", "2 members vote, 1 is healthy: a majority is 2, and without one nothing can be changed", "bring up enough of them: node2"},

		{"vl", etcd.Promotion, "l", "", ""},
		{"vvdl", etcd.Promotion, "l", "", ""},
		{"vvdv", etcd.Promotion, "v", "", ""},
		{"vddl", etcd.Promotion, "l", "3 members vote, 1 is healthy: a majority is 2, and without one nothing can be changed", "bring up enough of them: node2, node3"},
		{"vvvb", etcd.Promotion, "b", "node4 is 1001 log entries behind", ""},
		{"vvvs", etcd.Promotion, "s", "node4 is not healthy: no answer", ""},

		{"vvv", etcd.Pause, "v", "", ""},
		{"vvd", etcd.Pause, "d", "", ""},
		{"vvd", etcd.Pause, "v", "3 members vote, 2 are healthy; without node1 1 of 3 would be left: a majority is 2", "bring up node3 first, or remove what is gone for good"},
		{"vvvd", etcd.Pause, "v", "4 members vote, 3 are healthy; without node1 2 of 4 would be left: a majority is 3", "bring up node4 first, or remove what is gone for good"},
		{"vdd", etcd.Pause, "d", "", ""},
		{"vv", etcd.Pause, "v", "2 members vote, 2 are healthy; without node1 1 of 2 would be left: a majority is 2", ""},
		{"v", etcd.Pause, "v", "1 member votes, 1 is healthy; without node1 0 of 1 would be left: a majority is 1", ""},
		{"vl", etcd.Pause, "l", "", ""},
	} {
		v := view(test.members)
		err := v.Allows(test.change, v.Members[strings.Index(test.members, test.of)])
		if got := fmt.Sprint(err); got != test.want && (err != nil || test.want != "") || fault.Advice(err) != test.advice {
			t.Errorf("%s, %d of %s: %v (%s)", test.members, test.change, test.of, err, fault.Advice(err))
		}
		if fault.IsTransient(err) != (test.of == "b") {
			t.Errorf("%s, %d of %s: is it transient? %v", test.members, test.change, test.of, err)
		}
	}
}

func view(members string) (v etcd.View) {
	for i, is := range members {
		m := etcd.State{Member: etcd.Member{ID: uint64(i + 1), Name: fmt.Sprintf("node%d", i+1), PeerURLs: []string{fmt.Sprintf("https://10.0.0.%d:2380", i+1)}}}
		switch is {
		case 'd', 's', 'u':
			m.Err = errors.New("no answer")
		case 'b':
			m.Behind = etcd.MostBehind + 1
		}
		if is == 'u' {
			m.Name = ""
		}
		m.Member.Learner = strings.ContainsRune("lbs", is)
		v.Members = append(v.Members, m)
	}
	return v
}
