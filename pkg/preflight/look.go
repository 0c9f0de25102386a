package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/task"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Error is what makes hosts unfit, and what else was found.
type Error struct{ Findings []Finding }

// Summary counts what was found: "2 errors and 1 warning".
func Summary(findings []Finding) string {
	var errs, warnings int
	for _, f := range findings {
		if f.Severity == SeverityError {
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
func (e *Error) Title() string {
	what := "the machines are not fit: "
	if !slices.ContainsFunc(e.Findings, func(f Finding) bool { return f.Severity == SeverityError && !ofUpgrade(f.Check) }) {
		what = "the cluster is not ready to be upgraded: "
	}
	return what + Summary(e.Findings) + "; nothing has been touched"
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Title() + ":")
	for _, f := range e.Findings {
		check := f.Check
		if f.Severity == SeverityWarning {
			check += " (warning)"
		}
		fmt.Fprintf(&b, "\n  %s  %s: found %s; needed: %s; fix: %s", f.Host, check, f.Found, f.Needed, f.Fix)
	}
	return b.String()
}

// Unfit is the error of findings, nil when none is one.
func Unfit(findings []Finding) error {
	if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == SeverityError }) {
		return nil
	}
	var names []string // of checks that can be skipped
	for _, f := range findings {
		if f.Severity == SeverityError && slices.Contains(Names(), f.Check) {
			names = append(names, f.Check)
		}
	}
	slices.Sort(names)
	advice := "fix what is listed above"
	if names = slices.Compact(names); len(names) > 0 {
		advice += ", or skip what you know better: --skip-preflight=" + strings.Join(names, ",")
	}
	return fault.Exit(fault.Advise(&Error{findings}, advice), fault.ExitPreflight)
}

// Look is one look at the machines of a cluster.
type Look struct {
	Cluster *cluster.Cluster          // with the facts of its hosts
	Hosts   map[string]*runner.Runner // that are connected
	Skip    []string                  // checks that are left out
	Offline bool                      // nothing is to be fetched
	Later   []*cluster.Cluster        // the cluster as later runs of the same upgrade are to make it: what they need must be there, too
	To      int                       // minor version of Kubernetes at the end of the way, if that is a newer one than the cluster's; else 0
	Onward  bool                      // the upgrade was begun by a run that did not end well, or is the way back from one: what is found does not stop it
	Which   string                    // flags that name the cluster, and
	Where   string                    // its work directory, for advice

	uses func() apiUses // of an upgrade: several checks are about them
}

// Findings are what the facts of the hosts tell, an external etcd, where nothing is to be fetched the store, and where the control plane changes its
// version the cluster.
// An error is no machine's fault.
func (l *Look) Findings(ctx context.Context) ([]Finding, error) {
	_, err := l.Cluster.Certs.RecordedID()
	if err := cmp.Or(err, l.Cluster.Certs.Check(pki.Kubernetes)); err != nil {
		return nil, err
	}
	all := Facts(l.Cluster, l.Skip)
	if !slices.Contains(l.Skip, Etcd) {
		all = append(all, externalEtcd(ctx, l.Cluster, l.Hosts)...)
	}
	if l.Offline && !slices.Contains(l.Skip, Store) {
		all = append(all, l.store(ctx)...)
	}
	if l.Cluster.Spec.Source.Offline && !slices.Contains(l.Skip, Packages) {
		lacked, err := l.packages(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, lacked...)
	}
	upgrade, err := l.upgrade(ctx)
	if err != nil {
		return nil, err
	}
	all = append(all, upgrade...)
	sortFindings(all)
	return all, nil
}

// store finds what the store lacks where nothing is to be fetched.
func (l *Look) store(ctx context.Context) []Finding {
	var missing []string
	all, which, versions := append([]*cluster.Cluster{l.Cluster}, l.Later...), l.Which, []string{}
	items := cluster.Needs(all...)
	var err error
	for _, c := range all {
		err = cmp.Or(err, c.Err())
		versions = append(versions, c.Spec.Kubernetes.Version)
	}
	if versions = slices.Compact(versions); len(versions) > 1 {
		which = " --k8s " + strings.Join(versions, ",")
	}
	if err != nil {
		err = fmt.Errorf("finding out what cluster %s needs: %w", l.Cluster.Name, err)
	} else {
		var stock []resource.Stock
		stock, err = l.Cluster.Store.Look(ctx, items, false)
		for _, i := range stock {
			if !i.There {
				missing = append(missing, i.String())
			}
		}
	}
	found := Finding{
		Host: plan.Control, Check: Store, Severity: SeverityError, Needed: "everything that the cluster needs, as nothing is downloaded",
		Fix: "on a machine with internet: kubexm download" + which + l.systems() + " --export; copy its file here, then: kubexm import FILE" + l.Where,
	}
	switch {
	case err != nil:
		found.Found, found.Fix = err.Error(), cmp.Or(fault.Advice(err), "kubexm download --verify checks the whole store")
	case missing == nil:
		return nil
	default:
		found.Found = "not in the store: " + human.Names(missing, 20)
		if l.Cluster.Spec.Source.RequireSignatures {
			found.Found = "not in the store, or without the signature that spec.source.requireSignatures asks for: " + human.Names(missing, 20)
		}
	}
	return []Finding{found}
}

// packages finds what hosts without a network lack and the store has not either.
func (l *Look) packages(ctx context.Context) ([]Finding, error) {
	var all errgroup.Group
	all.SetLimit(64)
	hosts := slices.DeleteFunc(l.Cluster.All(), func(h string) bool { return l.Cluster.Facts[h] == nil || l.Hosts[h] == nil })
	found := make([]Finding, len(hosts))
	for i, h := range hosts {
		all.Go(func() (err error) { found[i], err = l.lacked(ctx, h); return err })
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(f Finding) bool { return f.Found == "" }), nil
}

// lacked asks one host for the packages that it lacks.
func (l *Look) lacked(ctx context.Context, host string) (Finding, error) {
	var lacked []string
	f := Finding{Host: host, Check: Packages, Severity: SeverityError, Needed: "the packages on the host, or in the store, as nothing is downloaded"}
	for _, st := range task.Packages(l.Cluster, host) {
		p, ok := step.Unwrap(st).(step.Packages)
		if !ok {
			continue
		}
		missing, err := p.Missing(ctx, l.Hosts[host])
		if err != nil {
			return f, fmt.Errorf("host %s: %w", host, err)
		}
		if missing, err = p.From.Lacks(missing); err != nil { // damaged
			f.Found, f.Fix = err.Error(), fault.Advice(err)
			return f, nil
		}
		lacked = append(lacked, missing...)
	}
	if lacked == nil {
		return f, nil
	}
	system, arch := l.Cluster.Repository(host).System, l.Cluster.Arch(host)
	f.Found = fmt.Sprintf("no %s on the host, nor for %s %s in the store", human.Names(lacked, 10), l.Cluster.FactsOf(host).OSName, arch)
	f.Fix = "install them by hand: the store cannot hold packages for this system"
	if system != "" {
		f.Fix = "on a machine with internet: kubexm download" + l.Which + " --os " + system + " --arch " + arch + " --export; copy its file here, then: kubexm import FILE" + l.Where
	}
	return f, nil
}

// systems are the flags that name the operating systems of the hosts, where their packages come from the store and it can hold them.
func (l *Look) systems() string {
	var all []string
	for _, h := range l.Cluster.All() {
		if from := l.Cluster.Repository(h); from != nil && from.System != "" {
			all = append(all, from.System)
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); all == nil {
		return ""
	}
	return " --os " + strings.Join(all, ",")
}
