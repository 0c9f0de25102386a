//go:build e2e

package e2e

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubexm/kubexm/test/testbed"
)

// What clusters have that no row of the matrix asks for.
func TestVariants(t *testing.T) {
	defer the.shrink(t)
	t.Run("far away behind a bastion", func(t *testing.T) {
		ctx, near := context.WithCancel(t.Context())
		ended, err := the.bed.Slow(ctx, the.nodes[0], 100*time.Millisecond, 0)
		must(t, err)
		defer func() {
			near()
			must(t, ended())
		}()
		cycle(t, newCluster(t, 1, where{}, set("global.user", "kube"), set("global.sudoPassword", testbed.Password),
			host(0, "bastion", map[string]any{"address": the.nodes[1].Address})))
	})
	t.Run("five members of etcd behind a load balancer of the user's own", func(t *testing.T) {
		the.resize(t, 5)
		balance(t, the.nodes[:3])
		both := []any{"worker", "etcd"}
		cycle(t, newCluster(t, 5, where{}, impatient, host(3, "roles", both), host(4, "roles", both), set("loadBalancer", map[string]any{
			"mode": "external", "external": map[string]any{"type": "external"}, "vip": the.bed.Gateway(),
		})))
	})
}

// balance leads connections to this machine's address on the testbed's network to
// masters, in turns, until the test ends.
func balance(t *testing.T, masters []testbed.Node) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(the.bed.Gateway(), "6443"))
	must(t, err)
	t.Cleanup(func() { l.Close() })
	var turn atomic.Int64
	dial := func() (net.Conn, error) {
		var err error
		for range masters {
			var to net.Conn
			n := masters[int(turn.Add(1))%len(masters)]
			if to, err = net.DialTimeout("tcp", net.JoinHostPort(n.Address, "6443"), time.Second); err == nil {
				return to, nil
			}
		}
		return nil, err
	}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				to, err := dial()
				if err != nil {
					return
				}
				defer to.Close()
				go func() {
					_, _ = io.Copy(to, from)
					to.Close()
				}()
				_, _ = io.Copy(from, to)
			}()
		}
	}()
}
