package app

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// The lease in a cluster that runs: who changes it holds that besides the locks of hosts, as two may reach different hosts.
const (
	leaseNamespace, leaseName = metav1.NamespaceSystem, kube.Lease
	leaseTitle                = "lease " + leaseNamespace + "/" + leaseName

	leaseRetry = 5 * time.Second // after a renewal that failed
)

// alone connects, and takes the lease. Where it had to wait for another holder, what was looked at before may be another's work by now: it lets go of
// everything, and begins again.
func (w *work) alone(ctx context.Context, connect func() (*site, error)) (*site, error) {
	for begun := len(w.ends); ; w.endTo(begun) {
		s, err := connect()
		if err != nil {
			return nil, err
		}
		if waited, err := s.takeLease(ctx); err != nil || !waited {
			return s, err
		}
		s.notice("looking at the machines again, as another kubexm may have changed them")
	}
}

// takeLease takes the lease, if the cluster runs and the locks of its hosts were taken, and keeps it until the work is closed. Only
// another holder is an error: the run may be there to bring the API server back. It tells whether it has waited for one.
func (s *site) takeLease(ctx context.Context) (waited bool, err error) {
	if s.unlock == nil || !s.cluster.Lives() {
		return false, nil
	}
	client, err := s.leaseClient()
	l := &kube.Claim{Namespace: leaseNamespace, Name: leaseName, Who: s.fleet.holder.Who, Token: s.fleet.holder.Token, Time: runner.LockTime}
	if err == nil {
		waited, err = s.tryLease(ctx, client, l)
	}
	held := (*kube.HeldError)(nil)
	switch {
	case err == nil:
	case errors.As(err, &held):
		return waited, s.busy(held.Who, "its lease is "+leaseNamespace+"/"+leaseName)
	case s.lost() != nil:
		return waited, s.lost()
	case errors.Is(err, ErrStopped):
		return waited, err
	case s.cluster.Observed.API == nil: // nobody has looked, as a cluster is deleted with or without one
		return waited, nil
	default:
		s.notice("warning: the cluster is not locked against another kubexm that reaches other hosts: %v", err)
	}
	if client != nil {
		s.keepLease(ctx, client, l, err)
	}
	return waited, nil
}

// tryLease takes the lease, unless the run is to stop before.
func (s *site) tryLease(ctx context.Context, client *kube.Client, l *kube.Claim) (waited bool, err error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	stop, ended := s.stop()
	defer ended()
	go func() { <-stop; cancel() }()
	err = client.TakeLease(waiting, l, func(who string) {
		waited = true
		s.notice("waiting for another kubexm, or for the end of its lease if it was killed: %s", who)
	})
	if err != nil && waiting.Err() != nil {
		err = fault.Exit(ErrStopped, fault.ExitInterrupted)
	}
	return waited, err
}

// leaseClient reaches the API server of any master that is connected, with the keys that there are.
func (s *site) leaseClient() (*kube.Client, error) {
	kept := &pki.Store{Dir: s.cluster.Certs.Dir, Existing: true}
	if _, err := kept.Trust(pki.Kubernetes); err != nil {
		return nil, err
	}
	return step.Kube(s.hosts[plan.API], s.cluster.AnyAPI())
}

// keepLease renews the lease until the work is closed, which releases it; err is why it was not taken.
func (s *site) keepLease(ctx context.Context, client *kube.Client, l *kube.Claim, err error) {
	ctx = context.WithoutCancel(ctx)
	renewal, stop := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { s.renewLease(renewal, client, l, err) })
	s.ends = append(s.ends, func() {
		stop()
		renewing.Wait()
		ctx, cancel := context.WithTimeout(ctx, leaseRetry)
		defer cancel()
		_ = client.ReleaseLease(ctx, l) // it expires
	})
}

// renewLease renews the lease until it is stopped. Where no API server answers, the run goes on: they are restarted by runs.
// Where somebody else has it, the run stops.
func (s *site) renewLease(ctx context.Context, client *kube.Client, l *kube.Claim, err error) {
	for {
		pause := l.Time / 3
		if err != nil {
			pause = leaseRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		err = client.RenewLease(ctx, l)
		if held := (*kube.HeldError)(nil); errors.As(err, &held) {
			s.takenOver(leaseTitle, held.Who)
			return
		}
	}
}

// lease is who has the lease of a cluster that runs, and a client to remove it with; "": nobody, or no API server can be asked, which is told.
func (f *fleet) lease(ctx context.Context) (who string, client *kube.Client) {
	facts, _ := f.gather(ctx) // hosts that fail have been told
	s := &site{work: &work{session: f.of}, fleet: f, cluster: cluster.New(f.of.config, f.of.dir, nil, facts)}
	s.cluster.Certs.Existing = true
	if !s.cluster.Lives() {
		return "", nil
	}
	s.hosts[plan.API] = runner.New(plan.API, apiPlace{s})
	client, err := s.leaseClient()
	if err == nil {
		who, err = client.ClaimedBy(ctx, leaseNamespace, leaseName)
	}
	if err != nil {
		f.of.notice("warning: left out: the %s: %v", leaseTitle, err)
	}
	return who, client
}
