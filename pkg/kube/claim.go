package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/util/human"
)

// Claim is a lease that one of many holds while it works. Where it is held, nobody else has it until it is released, or was not renewed
// for its time.
type Claim struct {
	Namespace, Name string
	Who             string        // holds it, for people: one line
	Token           string        // of the holder, a word: whoever has the same one takes the lease over at once
	Time            time.Duration // how long it outlives its last renewal

	last metav1.Preconditions // the lease as it was last written
}

// HeldError is a lease that another holds.
type HeldError struct{ Who string }

func (e *HeldError) Error() string { return "the lease is held by " + e.Who }

// Lease is the name of the one that whoever changes a cluster has, in kube-system.
const Lease = "kubexm"

const (
	leaseCall   = 10 * time.Second // for one question about a lease to one server
	leaseWatch  = time.Second      // from one look at another's lease to the next
	longestWait = 70 * time.Second // for another's lease to expire: a minute, and what looks take
	tokenMark   = " #"             // between who holds a lease and the token
)

// holder is the identity of the holder, as it is in the lease.
func (l *Claim) holder() string { return l.Who + tokenMark + l.Token }

// holderOf takes such an identity apart; one that is not of a Claim has no token.
func holderOf(identity string) (who, token string) {
	if at := strings.LastIndex(identity, tokenMark); at >= 0 {
		return human.Line(identity[:at]), identity[at+len(tokenMark):]
	}
	return human.Line(identity), ""
}

// other is who else holds the lease; nil: nobody does.
func (l *Claim) other(is *coordinationv1.LeaseSpec) *HeldError {
	if is.HolderIdentity == nil || *is.HolderIdentity == "" {
		return nil
	}
	who, token := holderOf(*is.HolderIdentity)
	if token == l.Token {
		return nil
	}
	return &HeldError{who}
}

// Claimant is who has the lease of a Claim, "" for nobody, and whether the next one takes it at once, as it was not renewed for so long.
func Claimant(is *coordinationv1.LeaseSpec) (who string, gone bool) {
	if is.HolderIdentity == nil {
		return "", false
	}
	who, _ = holderOf(*is.HolderIdentity)
	return who, new(Claim).outlived(is)
}

// outlived reports whether a lease was not renewed for twice its time by this machine's clock.
func (l *Claim) outlived(is *coordinationv1.LeaseSpec) bool {
	return is.RenewTime == nil || time.Since(is.RenewTime.Time) > 2*l.span(is)
}

// span is for how long a lease lasts after it was renewed.
func (l *Claim) span(is *coordinationv1.LeaseSpec) time.Duration {
	if is.LeaseDurationSeconds == nil {
		return l.Time
	}
	return time.Duration(*is.LeaseDurationSeconds) * time.Second
}

// TakeLease takes a lease. One that another holds is taken where it was not renewed for twice its time by this machine's clock, or
// is not renewed for its time while this function looks on, as clocks differ: waiting is told of that. One that is renewed,
// or does not expire within longestWait, is a *HeldError. Calls are not repeated.
func (c *Client) TakeLease(ctx context.Context, l *Claim, waiting func(who string)) error {
	var seen *coordinationv1.LeaseSpec // as another has it
	var since time.Time
	var renewed, expired bool
	over := func(is *coordinationv1.LeaseSpec) bool {
		switch {
		case seen == nil:
			seen, since = is, time.Now()
			expired = l.outlived(is)
		case equality.Semantic.DeepEqual(is, seen):
			expired = expired || time.Since(since) > l.span(is)
		default:
			renewed, expired = true, false
		}
		return expired
	}
	for told := false; ; told = true {
		err := c.claim(ctx, l, over)
		if err == nil || seen == nil || expired {
			return err
		}
		if renewed || time.Since(since) > longestWait {
			if held := (*HeldError)(nil); errors.As(err, &held) {
				return held
			}
			return l.other(seen)
		}
		if !told {
			waiting(l.other(seen).Who)
		}
		if !sleep(ctx, leaseWatch) {
			return ctx.Err()
		}
	}
}

// RenewLease renews a lease that was taken, or takes it again where nobody has it. One that another holds is a *HeldError. Calls are not
// repeated.
func (c *Client) RenewLease(ctx context.Context, l *Claim) error {
	return c.claim(ctx, l, func(*coordinationv1.LeaseSpec) bool { return false })
}

// claim writes a lease; over says whether one that another holds may be taken.
func (c *Client) claim(ctx context.Context, l *Claim, over func(*coordinationv1.LeaseSpec) bool) error {
	leases := c.Typed.CoordinationV1().Leases(l.Namespace)
	return c.askLease(ctx, "taking lease "+l.Name, func(ctx context.Context) error {
		lease, err := leases.Get(ctx, l.Name, metav1.GetOptions{})
		anew := apierrors.IsNotFound(err)
		if anew {
			lease, err = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}}, nil
		}
		if err != nil {
			return err
		}
		if held := l.other(&lease.Spec); held != nil && !over(lease.Spec.DeepCopy()) {
			return held
		}
		holder, seconds, now := l.holder(), int32(l.Time.Seconds()), metav1.NowMicro()
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != holder {
			lease.Spec.AcquireTime = &now
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &holder, &seconds, &now
		if anew {
			lease, err = leases.Create(ctx, lease, metav1.CreateOptions{FieldManager: FieldManager})
		} else {
			lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{FieldManager: FieldManager})
		}
		if err == nil {
			l.last = *only(lease)
		}
		return err
	})
}

// only lets a lease be removed as long as it is as it was read or written.
func only(lease *coordinationv1.Lease) *metav1.Preconditions {
	return &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}
}

// ReleaseLease removes a lease, unless another has it.
func (c *Client) ReleaseLease(ctx context.Context, l *Claim) error {
	leases := c.Typed.CoordinationV1().Leases(l.Namespace)
	return c.askLease(ctx, "releasing lease "+l.Name, func(ctx context.Context) error {
		var err error
		if l.last.UID != nil {
			err = leases.Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &l.last})
		}
		if l.last.UID == nil || apierrors.IsConflict(err) { // another has it, or the answer to the last write was lost
			var lease *coordinationv1.Lease
			if lease, err = leases.Get(ctx, l.Name, metav1.GetOptions{}); err == nil && l.other(&lease.Spec) == nil {
				err = leases.Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: only(lease)})
			}
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// RemoveLease removes a lease, whosever it is.
func (c *Client) RemoveLease(ctx context.Context, namespace, name string) error {
	return c.askLease(ctx, "removing lease "+name, func(ctx context.Context) error {
		err := c.Typed.CoordinationV1().Leases(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// ClaimedBy returns who has the lease of a Claim; "": nobody, or there is no such lease.
func (c *Client) ClaimedBy(ctx context.Context, namespace, name string) (who string, err error) {
	err = c.askLease(ctx, "reading lease "+name, func(ctx context.Context) error {
		identity, err := c.LeaseHolder(ctx, namespace, name)
		who, _ = holderOf(identity)
		return err
	})
	return who, err
}

// askLease makes a call about a lease, once at each server where one hangs, and again where somebody else has just written the lease.
func (c *Client) askLease(ctx context.Context, doing string, call func(context.Context) error) (err error) {
	again := func(ctx context.Context) error {
		err := call(ctx)
		for n := 0; n < 3 && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)); n++ {
			err = call(ctx)
		}
		return err
	}
	for range c.servers.addresses {
		turn := c.servers.turn.Load()
		one, cancel := context.WithTimeoutCause(Impatient(ctx), leaseCall, fmt.Errorf("no answer in %s", leaseCall))
		err = c.retry(one, doing, again)
		hangs := one.Err() != nil
		cancel()
		if err == nil || !hangs || ctx.Err() != nil {
			break
		}
		c.servers.next(turn)
	}
	return err
}
