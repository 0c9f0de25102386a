package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Fitness is what the preflight found.
type Fitness struct {
	Cluster  string            `json:"cluster"`
	Fit      bool              `json:"fit"`      // no finding is an error
	Hosts    int               `json:"hosts"`    // of the configuration
	Checks   []string          `json:"checks"`   // that were made
	Findings []cluster.Finding `json:"findings"` // errors first
}

// PreflightError is what makes hosts unfit, and what else was found.
type PreflightError struct{ Findings []cluster.Finding }

// Summary counts what was found: "2 errors and 1 warning".
func Summary(findings []cluster.Finding) string {
	var errs, warnings int
	for _, f := range findings {
		if f.Severity == cluster.SeverityError {
			errs++
		} else {
			warnings++
		}
	}
	switch {
	case warnings == 0:
		return human.Count(errs, "error")
	case errs == 0:
		return human.Count(warnings, "warning")
	}
	return human.Count(errs, "error") + " and " + human.Count(warnings, "warning")
}

// Title says what the matter is, without the findings.
func (e *PreflightError) Title() string {
	return "the machines are not fit: " + Summary(e.Findings) + "; nothing has been touched"
}

func (e *PreflightError) Error() string {
	var b strings.Builder
	b.WriteString(e.Title() + ":")
	for _, f := range e.Findings {
		check := f.Check
		if f.Severity == cluster.SeverityWarning {
			check += " (warning)"
		}
		fmt.Fprintf(&b, "\n  %s  %s: found %s; needed: %s; fix: %s", f.Host, check, f.Found, f.Needed, f.Fix)
	}
	return b.String()
}

// Unfit is the error of findings, nil when none is one.
func Unfit(findings []cluster.Finding) error {
	if !slices.ContainsFunc(findings, func(f cluster.Finding) bool { return f.Severity == cluster.SeverityError }) {
		return nil
	}
	err := fault.Advise(&PreflightError{findings}, "fix the hosts, or skip a check with --skip-preflight=NAME")
	return fault.Exit(err, fault.ExitPreflight)
}

// Preflight checks whether a cluster can be made of its machines. One that cannot be
// reached is a finding, too. Of machines nothing is changed, and no lock is taken.
func Preflight(ctx context.Context, o Options) (*Fitness, error) {
	s, err := open(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.makeDir(); err != nil {
		return nil, err
	}
	failed, err := s.reach(ctx)
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
	is := &Fitness{Cluster: s.config.Metadata.Name, Hosts: len(s.config.Spec.Hosts), Findings: []cluster.Finding{}}
	for _, e := range failed {
		severity := cluster.SeverityError
		if slices.Contains(s.cluster.Missing(), e.Host) {
			severity = cluster.SeverityWarning
		}
		is.Findings = append(is.Findings, cluster.Finding{
			Host: e.Host, Check: "connectivity", Found: e.Err.Error(), Needed: "an SSH login with root privileges",
			Severity: severity, Fix: cmp.Or(fault.Advice(e.Err), "check that the machine is up and lets you log in"),
		})
	}
	found, err := s.findings(ctx)
	if err != nil {
		return nil, err
	}
	is.Findings = append(is.Findings, found...)
	is.Checks = slices.DeleteFunc(cluster.CheckNames(), func(name string) bool { return slices.Contains(o.SkipPreflight, name) })
	is.Fit = Unfit(is.Findings) == nil
	return is, s.cluster.Err()
}

// findings are what the facts of the hosts tell, an external etcd, and where nothing is to be fetched the store.
func (s *session) findings(ctx context.Context) ([]cluster.Finding, error) {
	_, err := s.cluster.Certs.RecordedID()
	if err := cmp.Or(err, s.cluster.Certs.Check(pki.Kubernetes)); err != nil {
		return nil, err // no machine is at fault
	}
	lacked, err := s.tryPackages(ctx)
	all := slices.Concat(s.cluster.Preflight(s.SkipPreflight), s.tryEtcd(ctx), s.tryStore(ctx), lacked)
	cluster.SortFindings(all)
	return all, err
}

// tryStore finds what the store lacks where nothing is to be fetched.
func (s *session) tryStore(ctx context.Context) []cluster.Finding {
	if !s.config.Spec.Source.Offline && !s.built || slices.Contains(s.SkipPreflight, cluster.StoreCheck) {
		return nil
	}
	var missing []string
	items, err := needed(s.cluster)
	if err == nil {
		var stock []resource.Stock
		stock, err = s.cluster.Store.Look(ctx, items, false)
		for _, i := range stock {
			if !i.There {
				missing = append(missing, i.String())
			}
		}
	}
	found := cluster.Finding{
		Host: plan.Control, Check: cluster.StoreCheck, Severity: cluster.SeverityError, Needed: "everything that the cluster needs, as nothing is downloaded",
		Fix: "on a machine with internet: kubexm download" + s.which() + s.systems() + " --export; copy its file here, then: kubexm import FILE" + s.where(),
	}
	switch {
	case err != nil:
		found.Found, found.Fix = err.Error(), cmp.Or(fault.Advice(err), "kubexm download --verify checks the whole store")
	case missing == nil:
		return nil
	default:
		found.Found = "not in the store: " + human.Names(missing, 20)
	}
	return []cluster.Finding{found}
}

// tryPorts lets hosts try the ports of each other that they need.
func (s *session) tryPorts(ctx context.Context) []*HostError {
	if slices.Contains(s.SkipPreflight, cluster.Reachability) {
		return nil
	}
	return s.each(func(h *v1alpha1.Host) error {
		links := s.cluster.Links(h.Name)
		facts := s.cluster.Facts[h.Name]
		addresses := make([]string, 0, len(links)+1)
		for _, l := range links {
			addresses = append(addresses, s.cluster.LinkAddress(l))
		}
		if vip := s.cluster.VIPAddress(h.Name); vip != "" {
			addresses = append(addresses, vip)
		}
		if len(addresses) == 0 || facts == nil {
			return nil
		}
		ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer in %s", patience))
		defer cancel()
		tried, err := s.hosts[h.Name].Reach(ctx, addresses)
		facts.Tried = tried
		return err
	})
}

// checkSkipped refuses to leave out checks that there are not.
func (o *Options) checkSkipped() error {
	for _, name := range o.SkipPreflight {
		if !slices.Contains(cluster.CheckNames(), name) {
			return fault.Exit(fmt.Errorf("unknown preflight check %q; there are: %s", name, strings.Join(cluster.CheckNames(), ", ")), fault.ExitUsage)
		}
	}
	return nil
}

// preflight stops when a host is not fit; else warnings are told.
func (s *session) preflight(ctx context.Context) error {
	if failed := s.tryPorts(ctx); len(failed) > 0 {
		return joined(failed)
	}
	found, err := s.findings(ctx)
	if err != nil {
		return err
	}
	if err := Unfit(found); err != nil {
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
func (s *session) checkOwner(force bool) (nobodys []string, err error) {
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
