//go:build e2e

package e2e

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
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
	t.Run("machines with settings", prepared)
	t.Run("five members of etcd behind a load balancer of the user's own", func(t *testing.T) {
		the.resize(t, 5)
		balance(t, the.nodes[:3])
		both := []any{"worker", "etcd"}
		cycle(t, newCluster(t, 5, where{}, impatient, host(3, "roles", both), host(4, "roles", both), set("loadBalancer", map[string]any{
			"mode": "external", "external": map[string]any{"type": "external"}, "vip": the.bed.Gateway(),
		})))
	})
}

// prepared makes a cluster that asks for settings of its machines, of which one has a firewall.
func prepared(t *testing.T) {
	defer the.renew(t)
	node2 := the.nodes[1]
	the.on(t, node2, "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq ufw >/dev/null && ufw allow 22/tcp && ufw --force enable")
	c := newCluster(t, 1, where{}, impatient,
		set("system", map[string]any{"timezone": "Asia/Shanghai", "debs": []any{"tree"}, "sysctl": map[string]any{"net.core.somaxconn": "12345"}}),
		set("extra", map[string]any{
			"hosts":    []any{map[string]any{"domain": "nas.example.org", "address": "10.9.9.9"}},
			"resolves": []any{map[string]any{"address": "192.0.2.53"}},
		}))
	c.also = func() {
		for _, n := range the.nodes {
			const look = "date +%Z; command -v tree; sysctl -n net.core.somaxconn; getent hosts nas.example.org; grep -m1 ^nameserver /etc/resolv.conf; ufw status 2>/dev/null || true"
			got := strings.Fields(the.on(t, n, look))
			want := []string{"CST", "/usr/bin/tree", "12345", "10.9.9.9", "nas.example.org", "nameserver", "192.0.2.53"}
			if n == node2 {
				want = append(want, "Status:", "inactive")
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", n.Name, got, want)
			}
		}
	}
	cycle(t, c)
	if !strings.Contains(the.on(t, node2, "ufw status; iptables -S"), "-P INPUT DROP") {
		t.Error("the firewall is not back")
	}
}

// balance leads connections to this machine's address on the testbed's network to
// masters, in turns, until the test ends.
func balance(t *testing.T, masters []testbed.Node) {
	t.Helper()
	for _, port := range []string{"6443", "8443"} {
		balanceAt(t, port, masters)
	}
}

func balanceAt(t *testing.T, port string, masters []testbed.Node) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(the.bed.Gateway(), port))
	must(t, err)
	t.Cleanup(func() { l.Close() })
	var turn atomic.Int64
	dial := func() (net.Conn, error) {
		var err error
		for range masters {
			var to net.Conn
			n := masters[int(turn.Add(1))%len(masters)]
			if to, err = net.DialTimeout("tcp", net.JoinHostPort(n.Address, port), time.Second); err == nil {
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
