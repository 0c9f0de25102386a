package kube

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubexm/kubexm/pkg/kube/kubetest"
)

// TestNextServer has servers of one cluster die, and come back, under a client.
func TestNextServer(t *testing.T) {
	inBubble(t, func(t *testing.T, server *kubetest.Server, _ *Client, access Access) {
		dial, asked := access.Dial, []string{}
		down := map[string]error{}
		access.Address, access.Others, access.ServerName = "a:6443", []string{"b:6443", "c:6443"}, "kubernetes"
		var mu sync.Mutex // several connections are made at a time
		var conns []net.Conn
		lose := func() {
			mu.Lock()
			defer mu.Unlock()
			for _, conn := range conns {
				_ = conn.Close()
			}
		}
		access.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			asked = append(asked, addr)
			why := down[addr]
			mu.Unlock()
			if errors.Is(why, context.DeadlineExceeded) {
				<-ctx.Done()
			}
			if why != nil {
				return nil, why
			}
			conn, err := dial(ctx, network, addr)
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, conn)
			return conn, err
		}
		c := client(t, access)
		for _, now := range []struct {
			what  string
			prep  func()
			asked string
		}{
			{"all are up", func() {}, "a:6443"},
			{"the same one goes on", func() {}, ""},
			{"the first one dies with its connections", func() { down["a:6443"] = syscall.ECONNREFUSED; lose() }, "a:6443 b:6443"},
			{"it stays with the one that answers", func() { down["a:6443"] = nil }, ""},
			{"a machine is silent", func() { down["b:6443"] = context.DeadlineExceeded; lose() }, "b:6443 c:6443"},
		} {
			now.prep()
			asked = nil
			start := time.Now()
			if err := c.Apply(Impatient(t.Context()), object("v1", "Namespace", "x")); err != nil {
				t.Errorf("%s: %v", now.what, err)
			}
			synctest.Wait() // net/http dials on when nobody waits for it any more
			if got := strings.Join(slices.Compact(asked), " "); got != now.asked {
				t.Errorf("%s: asked %q, want %q", now.what, got, now.asked)
			}
			if took := time.Since(start); took > connecting+time.Second {
				t.Errorf("%s: took %s", now.what, took)
			}
		}
		for _, a := range []string{"a", "b", "c"} {
			down[a+":6443"] = syscall.ECONNREFUSED
		}
		lose()
		if err := c.APIReady(t.Context()); err == nil || !strings.Contains(err.Error(), "https://kubernetes/readyz") || !strings.Contains(err.Error(), ":6443: connection refused") {
			t.Error(err)
		}
	})
}

// TestNextServerIsReady has one of two servers answer that it is not.
func TestNextServerIsReady(t *testing.T) {
	inBubble(t, func(t *testing.T, server *kubetest.Server, _ *Client, access Access) {
		access.Others, access.ServerName = []string{"b:6443"}, "kubernetes"
		c := client(t, access)
		answers := []int{}
		server.Failing = func() []string {
			answers = append(answers, http.StatusOK)
			if len(answers) == 1 {
				return []string{"etcd"}
			}
			return nil
		}
		if err := c.APIReady(t.Context()); err != nil || len(answers) != 2 {
			t.Errorf("%d answers, %v", len(answers), err)
		}
		server.Failing = func() []string { return []string{"etcd"} }
		if err := c.APIReady(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd") {
			t.Error(err)
		}
	})
}
