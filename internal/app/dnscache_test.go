package app_test

import (
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/runner"
)

// TestCacheMoves gives the DNS caches another address, which takes an apply without them in between: nodes are drained before they go.
func TestCacheMoves(t *testing.T) {
	cacheMoves(t, "row9", "169.254.20.10")
	cacheMoves(t, "row9-ipv6", "fd69:254:20::10")
}

func cacheMoves(t *testing.T, name, to string) {
	bubble(t, func(t *testing.T) {
		was := row(t, name)
		with := func(cache string) string { return edited(t, was, "dns: {nodeLocalDNS: {"+cache+"}}") }
		w := newWorld(t, was, "")
		before := w.snapshot()
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.configure(with("ip: '" + to + "'"))
		a := w.attempt(t.Context())
		if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(err.Error(), "it cannot move to "+to+" at once") {
			t.Fatalf("the caches move at once: %v", err)
		}
		drains := func() (all []string) {
			for _, s := range w.proposal().Steps {
				if s.What == "drain the node" {
					all = append(all, s.Host)
				}
			}
			return all
		}
		w.configure(with("enabled: false"))
		if all := drains(); len(all) != len(w.hosts) {
			t.Errorf("without caches nodes are drained: %s", all)
		}
		w.apply()
		w.configure(with("ip: '" + to + "'"))
		if all := drains(); all != nil {
			t.Errorf("drained before there are caches: %s", all)
		}
		w.apply()
		w.settled()
		w.configure(with("enabled: false"))
		w.apply()
		for _, h := range w.hosts {
			for _, mark := range []string{runner.CacheMark.Label, "lo:" + runner.CacheMark.Metric} {
				h.SetAddr(mark, "") // as after a boot
			}
		}
		w.configure(with("enabled: true"))
		first := map[string]bool{}
		for _, s := range w.proposal().Steps {
			if s.What == "address of the DNS cache" {
				first[s.Host] = true
			} else if s.What == "apply node-local-dns" && len(first) != len(w.hosts) {
				t.Errorf("caches are to start before their address is there, which it is on %d hosts", len(first))
			}
		}
		w.apply()
		w.settled()
		_, err = w.attempt(t.Context()).delete()
		w.must(err)
		same(t, "hosts after delete", before, w.snapshot())
	})
}
