package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pipeline"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step/host"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// systemPipe is the pipeline that upgrades operating systems.
const systemPipe = "upgrade-os"

// UpgradeSystem brings packages of the operating systems of all hosts to newer versions, and restarts machines where that is needed, one after the other, as an apply
// does with what it restarts. MayRestart is asked before. The configuration stays as it is, and must be what was applied.
func (a *App) UpgradeSystem(ctx context.Context, r Request, o Observer, u host.Update) (*Result, error) {
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.asApplied(); err != nil {
		return nil, err
	}
	if u.Since, err = w.since(); err != nil {
		return nil, err
	}
	s, err := w.living(ctx, systemPipe)
	if err != nil {
		return nil, err
	}
	make := func(c *cluster.Cluster) plan.Pipeline { return pipeline.UpgradeSystem(c, u) }
	p := &Proposal{}
	if !r.DryRun {
		if p, err = s.outdated(ctx, make, u); err != nil {
			return nil, err
		}
		if !p.Empty() {
			if err := s.ask(ctx, p); err != nil {
				return nil, err
			}
		}
	}
	graph, err := planned(s.cluster, make) // steps are used once
	if err != nil {
		return nil, err
	}
	return s.runSeen(ctx, systemPipe, graph, p) // nobody watches the API: whoever does is restarted, too
}

// asApplied refuses to begin while the cluster is not what its configuration says.
func (w *work) asApplied() error {
	last, err := w.unedited()
	if err == nil && last.Result != "ok" {
		err = w.finishFirst(fmt.Errorf("the last run that applied a configuration, %s, did not end well", last.ID))
	}
	return err
}

// unedited refuses to begin while the configuration has changes, and returns the last run that applied it.
func (w *work) unedited() (last store.Run, err error) {
	if err := w.checkMade(); err != nil {
		return last, err
	}
	lines, err1 := w.unapplied()
	applied, err2 := w.records.Applied()
	if err := errors.Join(err1, err2); err != nil {
		return last, err
	}
	if lines != nil {
		err = w.finishFirst(fmt.Errorf("the configuration has changes that are not applied yet:\n  %s", joinLines(lines)))
	}
	return applied.Run, err
}

func (w *work) finishFirst(err error) error {
	return fault.Exit(fault.Advise(err, "finish that first: kubexm apply"+w.Which()), fault.ExitUsage)
}

// since is when the upgrade of operating systems began: now, or with the first of those runs that this one resumes.
func (w *work) since() (time.Time, error) {
	begun := time.Now()
	if !w.Resume {
		return begun, nil
	}
	runs, err := w.records.Runs()
	for _, r := range slices.Backward(runs) {
		if r.Pipeline != systemPipe || r.Result == "ok" {
			break
		}
		begun = r.Started
	}
	return begun, err
}

// outdated finds what is to be done, and refuses what cannot end well.
func (s *site) outdated(ctx context.Context, make func(*cluster.Cluster) plan.Pipeline, u host.Update) (*Proposal, error) {
	p, nodes, err := s.look(ctx, make)
	if err != nil {
		return nil, err
	}
	var unknown []*HostError
	var hosts, drains []string
	for i, n := range nodes {
		at := &p.Steps[i]
		at.Why = WhyUpgrade
		if is, why, _ := strings.Cut(at.Diff, ": "); strings.HasPrefix(is, "unknown") && n.Role == plan.RolePart {
			unknown = append(unknown, &HostError{n.Host, errors.New(why)})
		}
		if slices.Contains(hosts, n.Host) {
			continue
		}
		hosts = append(hosts, n.Host)
		if s.cluster.IsNode(n.Host) {
			drains = append(drains, n.Host)
		}
	}
	if unknown != nil {
		return nil, fault.Advise(joined(unknown), "nothing was touched; correct that, and run the same command again")
	}
	if here := s.here(hosts); here != "" && u.Reboot != host.RebootNever {
		err := fmt.Errorf("host %s is the machine that kubexm runs on: its restart would end this run", here)
		return nil, fault.Exit(fault.Advise(err, "run kubexm on another machine; or give --no-reboot, and restart machines one by one by hand"), fault.ExitUsage)
	}
	p.Away = s.awayWithout(hosts)
	return p, s.drainable(ctx, drains)
}

// here is the one of hosts that this process runs on; empty: none.
func (s *site) here(hosts []string) string {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		return ""
	}
	at := slices.IndexFunc(hosts, func(h string) bool {
		is := s.cluster.FactsOf(h).MachineID
		return is != "" && is == strings.TrimSpace(string(id))
	})
	if at < 0 {
		return ""
	}
	return hosts[at]
}

// awayWithout says for how long the API may be away while machines restart.
func (s *site) awayWithout(hosts []string) string {
	c := s.cluster
	var restarts []Restart
	for _, h := range hosts {
		switch is := c.Host(h); {
		case is.Is(v1alpha1.RoleMaster) && len(c.Masters()) == 1:
			return "until its only master has restarted: minutes"
		case h == c.FirstMaster() && c.Balancer() == "":
			return "for workers, which all ask " + h + ", until it has restarted: minutes"
		case is.Is(v1alpha1.RoleMaster):
			restarts = append(restarts, Restart{Service: "kube-apiserver"})
		case is.Is(v1alpha1.RoleLoadBalancer):
			restarts = append(restarts, Restart{Service: plugin.VIPOf(c.Spec).Unit})
		}
	}
	return s.away(restarts)
}
