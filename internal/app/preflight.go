package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/preflight"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Fitness is what the preflight found.
type Fitness struct {
	Cluster  string              `json:"cluster"`
	Fit      bool                `json:"fit"`      // no finding is an error
	Hosts    int                 `json:"hosts"`    // of the configuration
	Checks   []string            `json:"checks"`   // that were made
	Findings []preflight.Finding `json:"findings"` // errors first
}

// Preflight checks whether a cluster can be made of its machines. One that cannot be
// reached is a finding, too. Of machines nothing is changed, and no lock is taken.
func (a *App) Preflight(ctx context.Context, r Request, o Observer) (*Fitness, error) {
	opened, err := a.open(ctx, r, o)
	if err != nil {
		return nil, err
	}
	if err := opened.makeDir(); err != nil {
		return nil, err
	}
	w := &work{session: opened}
	if is, err := a.openRecords(w.dir, true, false); err != nil {
		w.notice(unkept, err)
	} else {
		w = opened.working(is, runner.Holder{})
	}
	defer w.close()
	s, failed, err := w.reach(ctx, false, v1alpha1.Source{Offline: true})
	if err != nil {
		return nil, err
	}
	s.observe(ctx)
	if _, err := s.leaveOut(failed); err != nil {
		return nil, err
	}
	failed = append(failed, s.tryPorts(ctx)...)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	is := &Fitness{Cluster: s.config.Metadata.Name, Hosts: len(s.config.Spec.Hosts), Findings: []preflight.Finding{}}
	for _, e := range failed {
		severity := preflight.SeverityError
		if slices.Contains(s.cluster.Missing(), e.Host) {
			severity = preflight.SeverityWarning
		}
		is.Findings = append(is.Findings, preflight.Finding{
			Host: e.Host, Check: preflight.Connectivity, Found: e.Err.Error(), Needed: "an SSH login with root privileges",
			Severity: severity, Fix: cmp.Or(fault.Advice(e.Err), "check that the machine is up and lets you log in"),
		})
	}
	found, err := s.findings(ctx, false)
	if err != nil {
		return nil, err
	}
	is.Findings = append(is.Findings, found...)
	is.Checks = slices.DeleteFunc(preflight.Names(), func(name string) bool { return slices.Contains(r.SkipPreflight, name) })
	is.Fit = preflight.Unfit(is.Findings) == nil
	return is, s.cluster.Err()
}

// findings are what there is to be found out.
func (s *site) findings(ctx context.Context, built bool) ([]preflight.Finding, error) {
	onward, err := s.onward()
	if err != nil {
		return nil, err
	}
	look := &preflight.Look{
		Cluster: s.cluster, Hosts: s.hosts, Skip: s.SkipPreflight, Offline: s.config.Spec.Source.Offline || built, Which: s.which(), Where: s.where(), To: config.Minor(s.goal.Kubernetes), Onward: onward,
	}
	for i, conf := range s.later {
		c := cluster.New(conf, s.dir, s.cluster.Store, s.cluster.Facts)
		c.Passing, c.Observed = i < len(s.later)-1, s.cluster.Observed
		look.Later = append(look.Later, c)
	}
	return look.Findings(ctx)
}

// tryPorts lets hosts try the ports of each other that they need, and listens on those where kubexm will have to.
func (s *site) tryPorts(ctx context.Context) []*HostError {
	return s.each(func(h *v1alpha1.Host) (err error) {
		r, facts := s.hosts[h.Name], s.cluster.Facts[h.Name]
		if facts == nil {
			return nil
		}
		ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer in %s", patience))
		defer cancel()
		if preflight.Forwards(s.cluster, h.Name) && !slices.Contains(s.SkipPreflight, preflight.Forwarding) {
			l, err := r.Listen(ctx)
			if fault.IsTransient(err) {
				return err
			} else if err != nil {
				facts.Deaf = err.Error()
			} else if err := l.Close(); err != nil {
				return err
			}
		}
		if addresses := preflight.Addresses(s.cluster, h.Name); len(addresses) > 0 && !slices.Contains(s.SkipPreflight, preflight.Reachability) {
			facts.Tried, err = r.Reach(ctx, addresses)
		}
		return err
	})
}

// checkSkipped refuses to leave out checks that there are not.
func (r *Request) checkSkipped() error {
	for _, name := range r.SkipPreflight {
		if !slices.Contains(preflight.Names(), name) {
			return fault.Exit(fmt.Errorf("unknown preflight check %q; there are: %s", name, strings.Join(preflight.Names(), ", ")), fault.ExitUsage)
		}
	}
	return nil
}

// preflight stops when a host is not fit; else warnings are told.
func (s *site) preflight(ctx context.Context, built bool) error {
	if failed := s.tryPorts(ctx); len(failed) > 0 {
		return joined(failed)
	}
	found, err := s.findings(ctx, built)
	if err != nil {
		return err
	}
	if err := preflight.Unfit(found); err != nil {
		return err
	}
	var warnings []string
	hosts := map[string][]string{} // by warning
	for _, f := range found {
		text := fmt.Sprintf("%s (%s)", f.Found, f.Fix)
		if hosts[text] == nil {
			warnings = append(warnings, text)
		}
		hosts[text] = append(hosts[text], f.Host)
	}
	for _, text := range warnings {
		s.notice("warning: %s: %s", human.Names(hosts[text], 10), text)
	}
	return nil
}

// checkOwner refuses to work on machines that belong to another cluster, and tells which
// belong to none. Where the cluster's ID is lost, force takes its name for proof: where there
// is one, machines of the same name that know another may be somebody else's.
func (s *site) checkOwner(force bool) (nobodys []string, err error) {
	id, err := s.cluster.Certs.RecordedID()
	if err != nil {
		return nil, err
	}
	var others []string
	advice := "take them out of spec.hosts, or delete the cluster that they are part of"
	namesakes := s.cluster.Namesakes()
	for _, h := range s.cluster.All() {
		why, namesake := s.cluster.Stranger(h), slices.Contains(namesakes, h)
		switch {
		case force && id == "" && namesake:
		case why != "":
			others = append(others, h+" is "+why)
			if namesake {
				advice = "use the --workdir that the cluster was created with; where that is lost: kubexm delete cluster" + s.Which() + " --force"
				if id != "" {
					advice += ", after removing " + s.cluster.Certs.Dir + " if no machine uses the keys in it"
				}
			}
		case !namesake && s.cluster.Facts[h] != nil:
			nobodys = append(nobodys, h)
		}
	}
	if others == nil {
		return nobodys, nil
	}
	err = fmt.Errorf("not this cluster's machines; nothing has been touched:\n  %s", joinLines(others))
	return nobodys, fault.Exit(fault.Advise(err, advice), fault.ExitPreflight)
}
