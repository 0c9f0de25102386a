package kube

import (
	"context"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/kube/kubetest"
)

// TestPassLease has a candidate lead while the leader before it still believes that it does, and one that is not there.
func TestPassLease(t *testing.T) {
	onEach(t, func(t *testing.T, c *Client) {
		ctx := within(t)
		holder := func(want string) {
			t.Helper()
			if got, err := c.LeaseHolder(ctx, "kube-system", "lock"); err != nil || got != want {
				t.Errorf("held by %q, want %q: %v", got, want, err)
			}
		}
		holder("")
		leads, lost := kubetest.Candidate(t, c.Typed, "lock", "node1")
		<-leads
		others, _ := kubetest.Candidate(t, c.Typed, "lock", "node2")
		holder("node1")
		if leader, err := c.PassLease(ctx, "kube-system", "lock", "node2"); err != nil || leader != "node2" {
			t.Fatal(leader, err)
		}
		<-others
		holder("node2")
		<-lost
		soon, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
		defer cancel()
		if leader, err := c.PassLease(soon, "kube-system", "lock", "node3"); err == nil {
			t.Errorf("passed to one that is not there: %s leads", leader)
		}
		kubetest.Candidate(t, c.Typed, "lock", "node4")
		if leader, err := c.PassLease(ctx, "kube-system", "lock", "node3"); err != nil || leader != "node4" {
			t.Errorf("one that is not there does not lead, but %q: %v", leader, err)
		}
	})
}
