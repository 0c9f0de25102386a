package kube

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/kube/kubetest"
)

func claimOf(who, token string, span time.Duration) *Claim {
	return &Claim{Namespace: "kube-system", Name: "claim", Who: who, Token: token, Time: span}
}

// silently is for waits that nobody is told of.
func silently(string) {}

// TestClaim has two take a lease, one after the other, while the first is there, and after it was killed.
func TestClaim(t *testing.T) {
	onEach(t, func(t *testing.T, c *Client) {
		ctx := within(t)
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		has := func(want string) {
			t.Helper()
			if got, err := c.ClaimedBy(ctx, "kube-system", "claim"); err != nil || got != want {
				t.Errorf("held by %q, want %q: %v", got, want, err)
			}
		}
		held := func(err error, who string) {
			t.Helper()
			if is := (*HeldError)(nil); !errors.As(err, &is) || is.Who != who {
				t.Errorf("held by %q: %v", who, err)
			}
		}
		ann, bob := claimOf("ann, process 1", "A", time.Second), claimOf("bob", "B", time.Second)
		has("")
		ok(c.TakeLease(ctx, ann, silently))
		has("ann, process 1")
		held(c.RenewLease(ctx, bob), "ann, process 1")

		renewing, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for sleep(renewing, 200*time.Millisecond) {
				if err := c.RenewLease(ctx, ann); err != nil {
					t.Error(err)
				}
			}
		}()
		told := ""
		held(c.TakeLease(ctx, bob, func(who string) { told = who }), "ann, process 1")
		if told != "ann, process 1" {
			t.Errorf("waited for %q", told)
		}
		stop()
		<-done
		again := claimOf("ann, process 2", "A", time.Second)
		ok(c.TakeLease(ctx, again, func(string) { t.Error("waits for its own lease") }))
		ok(c.ReleaseLease(ctx, ann)) // whose answer to the last write is not known any more
		has("")
		ok(c.RenewLease(ctx, again)) // which somebody removed
		has("ann, process 2")
		start := time.Now()
		ok(c.TakeLease(ctx, bob, silently))
		if waited := time.Since(start); waited < time.Second {
			t.Errorf("it was taken after %s", waited)
		}
		held(c.RenewLease(ctx, again), "bob")
		ok(c.ReleaseLease(ctx, again))
		has("bob")
		ok(c.ReleaseLease(ctx, bob))
		ok(c.ReleaseLease(ctx, bob))
		has("")
		ok(c.TakeLease(ctx, ann, silently))
		ok(c.RemoveLease(ctx, "kube-system", "claim"))
		ok(c.RemoveLease(ctx, "kube-system", "claim"))
		has("")
	})
}

// TestClaimOfAnother takes leases that others left: by another clock, for another time, or not renewed at all.
func TestClaimOfAnother(t *testing.T) {
	for name, is := range map[string]struct {
		holder  string
		renewed time.Duration // ago; 0: never
		span    int32         // seconds
		waits   time.Duration // about; 0: not at all
		held    bool
	}{
		"nobody has it":            {holder: "", renewed: time.Second, span: 60},
		"long gone":                {holder: "bob #B", renewed: 121 * time.Second, span: 60},
		"never renewed":            {holder: "a stranger", span: 60},
		"killed a while ago":       {holder: "bob #B", renewed: 90 * time.Second, span: 60, waits: time.Minute},
		"killed just now":          {holder: "bob #B", renewed: time.Second, span: 60, waits: time.Minute},
		"its clock is ahead":       {holder: "bob #B", renewed: -time.Hour, span: 60, waits: time.Minute},
		"for longer than we watch": {holder: "bob #B", renewed: time.Second, span: 3600, waits: longestWait, held: true},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := inMemory(t, kubetest.New())
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "claim"}}
				lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &is.holder, &is.span
				if is.renewed != 0 {
					at := metav1.NewMicroTime(time.Now().Add(-is.renewed))
					lease.Spec.RenewTime = &at
				}
				if _, err := c.Typed.CoordinationV1().Leases("kube-system").Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				err := c.TakeLease(t.Context(), claimOf("ann", "A", time.Minute), silently)
				if waited := time.Since(start); waited < is.waits || waited > is.waits+3*leaseWatch {
					t.Errorf("waited for %s, want %s", waited, is.waits)
				}
				if held := (*HeldError)(nil); errors.As(err, &held) != is.held || !is.held && err != nil {
					t.Error(err)
				}
				c.Close()
				time.Sleep(time.Minute) // the ends of a connection wait for one another's last words
			})
		})
	}
}

// TestClaimOfLostServer renews a lease while the server that was asked until then does not answer any more, and does not refuse.
func TestClaimOfLostServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, access := inMemory(t, kubetest.New())
		serve := access.Dial
		access.Address, access.Others, access.ServerName = "10.0.0.11:6443", []string{"10.0.0.12:6443"}, "kubernetes"
		lost := false
		access.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if lost && strings.HasPrefix(address, "10.0.0.11:") {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return serve(ctx, network, address)
		}
		c := client(t, access)
		l := claimOf("ann", "A", time.Minute)
		if err := c.TakeLease(t.Context(), l, silently); err != nil {
			t.Fatal(err)
		}
		c.Close()
		lost = true
		start := time.Now()
		if err := c.RenewLease(t.Context(), l); err != nil || time.Since(start) > 2*leaseCall {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		access.Others = nil
		alone := client(t, access)
		if err := alone.RenewLease(t.Context(), l); err == nil || apierrors.IsNotFound(err) {
			t.Errorf("renewed at a server that is lost: %v", err)
		}
		alone.Close()
		c.Close()
		time.Sleep(time.Minute)
	})
}
