package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/pipeline"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Pipelines of certificates, which are those of an apply.
const (
	renewPipe  = "renew-certificates"
	rotatePipe = "rotate-authorities"
)

// Renewed says which certificates are renewed; what is empty is all.
type Renewed struct {
	Authorities []pki.CA      // that have signed them
	Hosts       []string      // that have them
	Within      time.Duration // in which they end; 0: whenever they do
}

func (what Renewed) has(s pki.Spec) bool {
	return (what.Authorities == nil || slices.Contains(what.Authorities, s.CA)) && (what.Hosts == nil || slices.Contains(what.Hosts, s.Node))
}

// ending reports whether a certificate that does not renew itself ends in time.
func (what Renewed) ending(c Certificate) bool {
	return !c.Authority && !c.Rotates() && time.Until(c.Expires) < what.Within && (what.Hosts == nil || slices.Contains(what.Hosts, c.Host))
}

// Renew makes certificates anew that authorities of the cluster have signed, with the names that they should have now, and brings them to where they are used. What
// reads its certificates again is not restarted; the rest is, one machine after the other, as an apply does. MayRestart is asked before. No result: none is to be renewed.
func (a *App) Renew(ctx context.Context, r Request, o Observer, what Renewed) (*Result, error) {
	if what.Within > 0 { // else nothing is changed, also where somebody else has
		is, err := a.Certificates(ctx, r, o)
		if err != nil || !slices.ContainsFunc(is.Certificates, what.ending) {
			return nil, err
		}
	}
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := cmp.Or(w.asApplied(), w.has(what.Hosts)); err != nil {
		return nil, err
	}
	began := time.Now()
	s, err := w.living(ctx, renewPipe)
	if err != nil {
		return nil, err
	}
	s.cluster.Certs.Renew = pki.Renewal{Before: began, Of: what.has}
	s.why = WhyCertificates
	if what.Within > 0 {
		if whole := s.cluster.Certs.Validity; what.Within >= whole { // else all were renewed each time; a week later they may be asked for again
			what.Within = max(whole/3, 8*24*time.Hour)
		}
		s.cluster.Certs.Renew.Until = began.Add(what.Within)
		if _, err := planned(s.cluster, pipeline.Apply); err != nil || len(s.cluster.Certs.Pending()) == 0 {
			return nil, err // what ends is of hosts that left, or ends with its authority
		}
	}
	return s.bring(ctx, renewPipe, nil, false)
}

// has refuses names of hosts that the cluster does not have.
func (w *work) has(hosts []string) error {
	for _, h := range hosts {
		if !slices.ContainsFunc(w.config.Spec.Hosts, func(host v1alpha1.Host) bool { return host.Name == h }) {
			return fault.Exit(fmt.Errorf("cluster %s has no host %q", w.config.Metadata.Name, h), fault.ExitUsage)
		}
	}
	return nil
}

// Rotation says which authorities are exchanged for successors, and how.
type Rotation struct {
	Authorities []pki.CA
	Phase       string        // only this one: add, swap or drop; empty: all that are left
	Soak        time.Duration // to wait between two phases
	Restart     bool          // workloads whose pods may not know the successors
	Given       *pki.Pair     // the successor of the one authority; nil: a new one
}

// Rotate exchanges authorities, and the key of service-account tokens, for successors. It does so in three phases, each of which is an apply to all of the cluster: the
// successor is trusted, too (add); it signs, and all certificates are made anew (swap); the former one is not trusted any more (drop). Where a run ends in between, the cluster
// works as before, and the next one carries on. MayRestart is asked before each.
func (a *App) Rotate(ctx context.Context, r Request, o Observer, rot Rotation) (res *Result, err error) {
	done := map[pki.CA]bool{}
	for {
		var more bool
		if res, more, err = a.rotate(ctx, r, o, rot, done); err != nil || !more {
			return res, err
		}
		if rot.Soak > 0 {
			a.use(r, o).notice("the next phase begins in %s", rot.Soak)
		}
		select {
		case <-time.After(rot.Soak):
		case <-o.Stop:
			return res, fault.Exit(ErrStopped, fault.ExitInterrupted)
		case <-ctx.Done():
			return res, ctx.Err()
		}
	}
}

// UseAuthority makes an authority of the user's that of a cluster that is not made yet.
func (a *App) UseAuthority(ctx context.Context, r Request, o Observer, ca pki.CA, given *pki.Pair) error {
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return err
	}
	defer w.close()
	certs := &pki.Store{Dir: filepath.Join(w.dir, "certs")}
	return cmp.Or(certs.Use(ca, given), certs.Flush())
}

// rotate is one phase of Rotate. Authorities that are through are added to done. more: others are to follow.
func (a *App) rotate(ctx context.Context, r Request, o Observer, rot Rotation, done map[pki.CA]bool) (_ *Result, more bool, err error) {
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return nil, false, err
	}
	defer w.close()
	last, err := w.unedited()
	if err != nil {
		return nil, false, err
	}
	s, err := w.living(ctx, rotatePipe)
	if err != nil {
		return nil, false, err
	}
	if missing := s.cluster.Missing(); missing != nil {
		err := fmt.Errorf("authorities cannot be rotated without %s: they would know nobody afterwards", human.Names(missing, 10))
		return nil, false, fault.Advise(err, "bring them up, or take them out of the cluster, and run the same command again")
	}
	s.why = WhyCertificates
	if last.Result != "ok" || last.Missing != nil { // all hosts are to be in one phase before the next one begins
		w.notice("finishing what %s has left", last.ID)
		if err := s.dropped(rot, done); err != nil {
			return nil, false, err
		}
		res, err := s.bring(ctx, rotatePipe, nil, false)
		reached, unknown := s.reached(rot)
		if err == nil && unknown == nil && reached {
			_, unknown = s.heir(rot, "")
		}
		return res, !r.DryRun && !reached, errors.Join(err, unknown)
	}
	phase, some, err := s.next(rot, done)
	if err != nil || some == nil {
		return &Result{Cluster: s.config.Metadata.Name}, false, err
	}
	if heir, err := s.heir(rot, phase); err != nil || heir {
		return &Result{Cluster: s.config.Metadata.Name}, false, err
	}
	if err := s.may(ctx, phase, rot, some); err != nil {
		return nil, false, err
	}
	successor := func(s *pki.Store, ca pki.CA) error { return s.AddGiven(ca, rot.Given) }
	begin := map[string]func(*pki.Store, pki.CA) error{add: successor, swap: (*pki.Store).Swap, drop: (*pki.Store).Drop}[phase]
	var names []string
	for _, ca := range some {
		err = errors.Join(err, begin(s.cluster.Certs, ca))
		names = append(names, string(ca))
	}
	if err != nil {
		return nil, false, err
	}
	w.notice("%s: %s", fmt.Sprintf(phases[phase], strings.Join(names, ", ")), "phase "+phase)
	res, err := s.bring(ctx, rotatePipe, nil, false)
	if err == nil && phase == drop {
		for _, ca := range some {
			done[ca] = true
		}
	}
	return res, err == nil && !r.DryRun && rot.Phase == "", err
}

// dropped adds authorities to done that a run has dropped which did not end well: it was their last phase.
func (s *site) dropped(rot Rotation, done map[pki.CA]bool) error {
	whole, err := s.wholeSince(time.Time{})
	for _, ca := range rot.Authorities {
		phase, failed := s.cluster.Certs.Phase(ca)
		if err = errors.Join(err, failed); err == nil && phase == pki.Steady && s.cluster.Certs.DroppedSince(ca, whole) {
			done[ca] = true
		}
	}
	return err
}

// wholeSince is when the first run after a time, or where that is zero the last of all, has ended that brought all machines to one state; zero: there was none.
func (s *site) wholeSince(at time.Time) (ended time.Time, err error) {
	runs, err := s.records.Runs()
	for _, run := range runs {
		if run.Result != "ok" || run.Missing != nil || run.Ended == nil || !applies(run.Pipeline) || !run.Ended.After(at) {
			continue
		}
		if ended = *run.Ended; !at.IsZero() {
			break
		}
	}
	return ended, err
}

// heir reports whether the user's authority signs already, or is the one that will. Another successor than that is an error.
func (s *site) heir(rot Rotation, phase string) (done bool, err error) {
	if rot.Given == nil {
		return false, nil
	}
	ca := rot.Authorities[0]
	is, err := s.cluster.Certs.Heir(ca)
	if err != nil {
		return false, err
	}
	same := is.X509.Equal(rot.Given.X509)
	if phase != add && !same {
		err := fmt.Errorf("authority %s is on its way to another successor, %s, which ends on %s", ca, is.X509.Subject, is.X509.NotAfter.Format(time.DateOnly))
		return false, fault.Exit(fault.Advise(err, "end that rotation first, without --cert and --key"), fault.ExitUsage)
	}
	return phase == add && same, nil
}

// The phases of a rotation.
const (
	add  = "add"
	swap = "swap"
	drop = "drop"
)

// phases say what happens to authorities in each.
var phases = map[string]string{
	add:  "the successors of %s are trusted, too",
	swap: "the successors of %s sign",
	drop: "what signed before the successors of %s is trusted no more",
}

// reached reports whether all authorities are through the one phase that was asked for.
func (s *site) reached(rot Rotation) (bool, error) {
	to := map[string]pki.Phase{add: pki.Added, swap: pki.Swapped, drop: pki.Steady}
	for _, ca := range rot.Authorities {
		phase, err := s.cluster.Certs.Phase(ca)
		if want, only := to[rot.Phase]; err != nil || !only || s.signs(ca) && phase != want {
			return false, err
		}
	}
	return true, nil
}

// next is the phase to begin, and for which authorities: the earliest that any is to go through, so that all come along.
func (s *site) next(rot Rotation, done map[pki.CA]bool) (string, []pki.CA, error) {
	at := map[string][]pki.CA{}
	for _, ca := range rot.Authorities {
		if !s.signs(ca) {
			continue
		}
		phase, err := s.cluster.Certs.Phase(ca)
		if err != nil {
			return "", nil, err
		}
		if !done[ca] {
			to := [...]string{pki.Steady: add, pki.Added: swap, pki.Swapped: drop}[phase]
			at[to] = append(at[to], ca)
		}
	}
	for _, phase := range []string{add, swap, drop} {
		if some := at[phase]; some != nil && (rot.Phase == "" || rot.Phase == phase) {
			return phase, some, nil
		}
	}
	if rot.Phase == "" || len(done) > 0 {
		return "", nil, nil
	}
	var are []string
	for to, some := range at {
		for _, ca := range some {
			are = append(are, fmt.Sprintf("%s: %s is next", ca, to))
		}
	}
	slices.Sort(are)
	return "", nil, fault.Exit(fmt.Errorf("no authority is at phase %s:\n  %s", rot.Phase, joinLines(are)), fault.ExitUsage)
}

// signs reports whether something of the cluster depends on an authority.
func (s *site) signs(ca pki.CA) bool {
	switch ca {
	case pki.Etcd:
		return !s.cluster.ExternalEtcd()
	case pki.Registry:
		return s.cluster.RegistryHost() != ""
	default:
		return true
	}
}

// may refuses a phase in which something may not know any more who signs. Pods know the successors when they have started after these began to sign: until they are dropped, what
// signed before vouches for them. Where that may not do so, pods must have started after they came to be trusted. With rot.Restart they are restarted.
func (s *site) may(ctx context.Context, phase string, rot Rotation, some []pki.CA) error {
	if phase == add || s.DryRun {
		return nil
	}
	since, began, force := (*pki.Store).SwappedAt, "signed", "--force"
	if phase == swap { // all machines have the successor since the end of the run that has added it
		since = func(certs *pki.Store, ca pki.CA) (time.Time, error) {
			at, err1 := certs.AddedAt(ca)
			ended, err2 := s.wholeSince(at)
			if ended.IsZero() { // a clock was set
				ended = time.Now()
			}
			return ended, errors.Join(err1, err2)
		}
		began, force = "were trusted", "--phase swap --force"
	}
	forced := s.Force && phase == cmp.Or(rot.Phase, drop) // who forces a drop has not said so of a swap
	latest, err := s.unbridgedSince(phase, some, since)
	if err != nil || latest.IsZero() {
		return err
	}
	client, err := step.Kube(s.hosts[plan.API], s.cluster.AnyAPI())
	if err != nil {
		return err
	}
	if phase == drop && slices.Contains(some, pki.Kubernetes) && !forced {
		if err := s.mayForgetBundles(ctx, client); err != nil {
			return err
		}
	}
	old, err := client.CallersBefore(ctx, latest)
	if err == nil && rot.Restart && old != nil {
		s.notice("restarting what has started before the successors %s: %s", began, human.Names(workloads(old), 10))
		if err = client.Restart(ctx, old); err == nil {
			old, err = client.CallersBefore(ctx, latest)
		}
	}
	if err != nil || old == nil || forced {
		return err
	}
	err = fmt.Errorf("these pods have started before the successors %s, and may know only what signed before:\n  %s", began, joinLines(workloads(old)))
	return fault.Advise(err, "the cluster works as it is. Restart them, by hand or with --restart-workloads, and run the same command again; "+force+" goes on without")
}

// mayForgetBundles refuses to end the trust in an authority by which API servers believe webhooks and others that they call.
func (s *site) mayForgetBundles(ctx context.Context, client *kube.Client) error {
	signer, err := s.cluster.Certs.CA(pki.Kubernetes)
	if err != nil {
		return err
	}
	was, err := s.cluster.Certs.Former(pki.Kubernetes)
	if err != nil || was == nil {
		return err
	}
	objects, err := client.Trusting(ctx, was, signer.X509)
	if err != nil || objects == nil {
		return err
	}
	err = fmt.Errorf("the caBundle of these has only what signed before, so that API servers believe what they call only with a certificate of that:\n  %s", joinLines(objects))
	return fault.Advise(err, "give those programs new certificates, and add the new authority to caBundle (kubectl get configmap kube-root-ca.crt has it); then run the same command again; --force goes on without")
}

// unbridgedSince is the latest time since which pods know who signs after a phase; zero: all do.
func (s *site) unbridgedSince(phase string, some []pki.CA, since func(*pki.Store, pki.CA) (time.Time, error)) (latest time.Time, err error) {
	for _, ca := range some {
		if ca != pki.Kubernetes && ca != pki.ServiceAccounts {
			continue // no pod knows it
		}
		if phase == swap {
			if bridged, err := s.cluster.Certs.Bridged(ca); err != nil {
				return latest, err
			} else if bridged {
				continue
			}
		}
		at, err := since(s.cluster.Certs, ca)
		if err != nil {
			return latest, err
		}
		if at.After(latest) {
			latest = at
		}
	}
	return latest, nil
}

func workloads(all []kube.Workload) (names []string) {
	for _, w := range all {
		names = append(names, w.String())
	}
	return names
}
