package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// PreflightError is what makes hosts unfit.
type PreflightError struct{ Findings []cluster.Finding }

func (e *PreflightError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; nothing has been touched:", human.Count(len(e.Findings), "preflight finding"))
	for _, f := range e.Findings {
		fmt.Fprintf(&b, "\n  %s  %s: found %s; needed: %s; fix: %s", f.Host, f.Check, f.Found, f.Needed, f.Fix)
	}
	return b.String()
}

// checkSkipped refuses to leave out checks that there are not.
func (o *Options) checkSkipped() error {
	for _, name := range o.SkipPreflight {
		if !slices.Contains(cluster.CheckNames(), name) {
			return fault.Exit(fmt.Errorf("no preflight check is named %q; there are: %s", name, strings.Join(cluster.CheckNames(), ", ")), fault.ExitUsage)
		}
	}
	return nil
}

// preflight stops when a host is not fit; warnings are told.
func (s *session) preflight() error {
	var bad []cluster.Finding
	var warnings []string
	hosts := map[string][]string{} // by warning
	for _, f := range s.cluster.Preflight(s.SkipPreflight) {
		if f.Error {
			bad = append(bad, f)
		} else {
			text := fmt.Sprintf("%s (%s)", f.Found, f.Fix)
			if hosts[text] == nil {
				warnings = append(warnings, text)
			}
			hosts[text] = append(hosts[text], f.Host)
		}
	}
	for _, text := range warnings {
		s.notice("warning: %s: %s", human.Names(hosts[text], 10), text)
	}
	if bad == nil {
		return nil
	}
	err := fault.Advise(&PreflightError{bad}, "mend the hosts, or leave a check out with --skip-preflight=NAME")
	return fault.Exit(err, fault.ExitPreflight)
}

// checkOwner refuses to delete from machines that belong to another cluster, and
// tells which belong to none. Where the cluster's keys are lost, force takes its
// name for proof.
func (s *session) checkOwner(force bool) error {
	pin, err := s.cluster.Certs.Pin(pki.Kubernetes)
	if err != nil {
		return err
	}
	var others, untouched []string
	members := s.cluster.Members()
	for _, h := range s.cluster.All() {
		why, member := s.cluster.Stranger(h), slices.Contains(members, h)
		switch {
		case force && pin == "" && member:
		case why != "":
			others = append(others, h+" is "+why)
		case !member && s.cluster.Facts[h] != nil:
			untouched = append(untouched, h)
		}
	}
	if untouched != nil {
		s.notice("not part of the cluster, left alone: %s", human.Names(untouched, 10))
	}
	if others == nil {
		return nil
	}
	err = fmt.Errorf("not this cluster's machines; nothing has been touched:\n  %s", joinLines(others))
	return fault.Exit(fault.Advise(err, "delete with the --workdir that the cluster was made with; where that is lost: kubexm delete cluster --force"), fault.ExitPreflight)
}
