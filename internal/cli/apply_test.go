package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// proposed is something to do on two machines.
func proposed() *app.Proposal {
	return &app.Proposal{
		Cluster: "prod",
		Steps: []app.ProposedStep{
			{Host: "node1", What: "service kube-apiserver", Why: app.WhyFile, Diff: "-  --a\n+  --a \\\n+  --v=4\n", Restarts: []string{"kube-apiserver"}},
			{Host: "node2", What: "file /etc/crictl.yaml", Why: app.WhyDrift, Diff: "-x\n"},
		},
		Restarts: []app.Restart{{Service: "kube-apiserver", Hosts: []string{"node1"}}},
		Away:     "until its only API server is back: about 10 s", Missing: []string{"node3"},
	}
}

func TestProposal(t *testing.T) {
	leaving := proposed()
	leaving.Leaving, leaving.Lost, leaving.Rejoin = []string{"node4", "node5", "node6"}, []string{"node5"}, []string{"node6"}
	for name, test := range map[string]struct {
		what *app.Proposal
		diff bool
	}{
		"something": {proposed(), false}, "with diff": {proposed(), true}, "nothing": {&app.Proposal{Cluster: "prod"}, false}, "leaving": {leaving, false},
		"back": {&app.Proposal{Cluster: "prod", Revision: "20260102T030405.000Z-apply", File: "conf/prod/cluster.yaml"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := (&program{}).writeProposal(&out, test.what, test.diff); err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, out.String())
		})
	}
}

// TestMayRestart has nobody to ask, and somebody who agreed before.
func TestMayRestart(t *testing.T) {
	p := &program{in: strings.NewReader("yes\n")}
	if err := (&program{in: p.in, yes: true}).mayRestart(t.Context(), proposed()); err != nil {
		t.Errorf("agreed: %v", err)
	}
	err := p.mayRestart(t.Context(), proposed())
	if fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "restarts services (kube-apiserver on node1), and there is no terminal") || !strings.Contains(fault.Advice(err), "--yes") {
		t.Errorf("without a terminal: %v: %s", err, fault.Advice(err))
	}
	saved := proposed()
	saved.Hash = "1"
	for what, look := range map[*app.Proposal]string{saved: "kubexm plan apply;", proposed(): "--dry-run;"} {
		if err := p.mayRestart(t.Context(), what); !strings.Contains(fault.Advice(err), look) {
			t.Errorf("without %q: %s", look, fault.Advice(err))
		}
	}
}
