package app_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/observe"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// errDeclined is somebody who is asked and says no.
var errDeclined = errors.New("no")

// TestFormerOfOthers lets a lone master move together with machines that are not known: nothing is changed on them before they are found fit and the question is answered.
func TestFormerOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const address = "10.0.0.61"
		config := joinedBy(row(t, "row2"), "node5 worker")
		w := newWorld(t, config, "")
		w.configure(without(config, "node5"))
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		node2 := w.hosts["node2"]
		w.moveTo("node1", address)
		w.fresh("node2", "fedcba9876543210fedcba9876543210")
		w.configure(strings.Replace(config, addresses["node1"], address, 1))
		a := w.attempt(t.Context())
		if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(err.Error(), "host node2 is another machine than before") || w.formerKept() > 0 {
			t.Fatalf("another machine is taken for the one before: %v; former addresses: %d", err, w.formerKept())
		}
		w.hosts["node2"] = node2
		a = w.attempt(t.Context())
		a.MayRestart = func(context.Context, *app.Proposal) error { return errDeclined }
		if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); !errors.Is(err, errDeclined) || w.formerKept() == 0 {
			t.Fatalf("%v; former addresses: %d", err, w.formerKept())
		}
		for _, c := range w.verify() {
			if c.What == "former addresses" && (c.Result != observe.OK || c.Where == "node1" && c.Found != addresses["node1"]) {
				t.Errorf("the cluster still needs them: %+v", c)
			}
		}
		if strings.Contains(strings.Join(w.hosts["node5"].Log(), "\n"), "route to") {
			t.Error("a machine that is to join is changed before anybody said yes")
		}
	})
}

// TestFormerWithBroken moves two of three masters, on one of which no API server starts: the others go on without it.
func TestFormerWithBroken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		config := row(t, "row9")
		w := newWorld(t, config, "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		for host, address := range map[string]string{"node2": "10.0.0.62", "node3": "10.0.0.63"} {
			w.hosts[host].SetAddr("eth0", address+"/24")
			config = strings.Replace(config, addresses[host], address, 1)
		}
		w.configure(config)
		broken := map[string]bool{"node3": true}
		try := func() (*attempt, error) {
			a := w.attempt(t.Context())
			a.around = func(h *runnertest.Host, ctx context.Context, c connector.Cmd) error {
				if strings.Contains(c.Line, "no API server listens") && broken[h.Name] {
					fmt.Fprintln(c.Stdout, "no API server listens at port 6443")
					return nil
				}
				return h.Exec(ctx, c)
			}
			a.MayRestart = func(context.Context, *app.Proposal) error { return errDeclined }
			_, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil)
			return a, err
		}
		const says = "host node3: no API server listens at port 6443"
		if a, err := try(); !errors.Is(err, errDeclined) || !slices.Contains(a.Notices, "warning: "+says) {
			t.Errorf("%v; told: %q", err, a.Notices)
		}
		broken["node1"], broken["node2"] = true, true
		if _, err := try(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("no master is left: %v", err)
		}
		clear(broken)
		w.moved = map[string]string{"node2": "10.0.0.62", "node3": "10.0.0.63"}
		w.apply()
		log := strings.Join(w.hosts["node2"].Log(), "\n")
		if again := log[strings.LastIndex(log, "stop containerd.service"):]; !strings.Contains(again, "route to "+addresses["node3"]) {
			t.Error("node2 joins again and does not reach node3, which has not moved for etcd yet")
		}
		w.settled()
		w.verified()
	})
}

// TestFormerWithFresh moves a lone master and adds a worker, in one apply.
func TestFormerWithFresh(t *testing.T) {
	for _, name := range []string{"row1", "row2", "row2-ipv6"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				config := joinedBy(row(t, name), "node5 worker")
				w := newWorld(t, config, "")
				w.configure(without(config, "node5"))
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				former, address := w.at("node1"), w.like("10.0.0.61")
				w.moveTo("node1", address)
				w.configure(strings.Replace(config, former, address, 1))
				w.apply()
				w.settled()
				w.verified()
			})
		})
	}
}

// TestFormerCounted moves hosts of the control plane. Their former addresses come back where, without these, no API server would be left, or too few of the
// members that etcd has: those that join do not count; and where several have moved: one changes only when the others are healthy.
func TestFormerCounted(t *testing.T) {
	elsewhere := joinedBy(row(t, "etcd-elsewhere"), "node5 etcd", "node6 etcd")
	for name, c := range map[string]struct {
		was, is string
		moves   []string
		kept    bool
	}{
		"new members":        {alone(row(t, "row9")), row(t, "row9"), []string{"node1"}, true},
		"new members, IPv6":  {alone(row(t, "row9-ipv6")), row(t, "row9-ipv6"), []string{"node1"}, true},
		"the only master":    {elsewhere, elsewhere, []string{"node1"}, true},
		"a master, a member": {apart(row(t, "row9")), apart(row(t, "row9")), []string{"node1", "node5"}, true},
		"a master alone":     {apart(row(t, "row9")), apart(row(t, "row9")), []string{"node1"}, false},
		"a member alone":     {apart(row(t, "row9")), apart(row(t, "row9")), []string{"node5"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w, _ := between(t, [2]string{c.was, c.is})
				moved, text := map[string]string{}, c.is
				for _, h := range c.moves {
					former := w.at(h)
					moved[h] = w.like(strings.Replace(addresses[h], "10.0.0.1", "10.0.0.6", 1))
					if c.kept { // it is reached there again
						w.hosts[h].SetIPs(moved[h])
					} else {
						w.moveTo(h, moved[h])
					}
					text = strings.Replace(text, former+",", moved[h]+",", 1)
				}
				w.moved = moved
				w.configure(text)
				w.apply()
				if kept := w.formerKept() > 0; kept != c.kept {
					t.Errorf("former addresses are kept: %t", kept)
				}
				w.settled()
				w.verified()
			})
		})
	}
}

// apart is a configuration whose members of etcd are on hosts of their own.
func apart(config string) string {
	return joinedBy(strings.ReplaceAll(config, "[master, etcd]", "[master]"), "node5 etcd", "node6 etcd", "node7 etcd")
}
