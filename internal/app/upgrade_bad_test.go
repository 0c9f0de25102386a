package app_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// TestBadRelease has a program of the new release that does not work, on one host: what ran before runs there again, and the next run says so too.
func TestBadRelease(t *testing.T) {
	for program, host := range map[string]string{"kube-apiserver": "node2", "etcd": "node1", "kubelet": "node4"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				was, is := ofRelease(t, row(t, "row9"), "36"), row(t, "row9")
				w := newWorld(t, edited(t, was, "etcd: {version: v3.6.16}"), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				h, before := w.hosts[host], release(w.hosts[host], program)
				started := h.OnStart[program+".service"]
				h.OnStart[program+".service"] = func(h *runnertest.Host) error {
					if text, _ := h.Get("/usr/local/bin/" + program); programVersion.FindString(text) != before {
						return errors.New("illegal instruction")
					}
					return started(h)
				}
				w.configure(is)
				a := w.attempt(t.Context())
				if _, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(err.Error(), "illegal instruction") {
					t.Fatalf("apply: %v", err)
				}
				if now := programVersion.FindString(h.Program(program)); now != before {
					t.Errorf("%s runs in version %q, which was %s", program, now, before)
				}
				h.OnStart[program+".service"] = started
				w.apply()
				w.settled()
				w.released(config.VersionsFor("v1.37.0"))
			})
		})
	}
}

// TestUnwellRelease has API servers of the new release that start, and are never ready: the first one goes back, and the others stay.
func TestUnwellRelease(t *testing.T) {
	for _, name := range []string{"row7", "row9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, ofRelease(t, row(t, name), "36"), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				w.api.Failing = func() []string {
					for name := range w.servers {
						if config.Minor(release(w.hosts[name], "kube-apiserver")) == 37 {
							return []string{"poststarthook/rbac/bootstrap-roles"}
						}
					}
					return nil
				}
				w.configure(row(t, name))
				a := w.attempt(t.Context())
				if _, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(err.Error(), "bootstrap-roles") {
					t.Fatalf("apply: %v", err)
				}
				for _, name := range slices.Sorted(maps.Keys(w.servers)) {
					if is := release(w.hosts[name], "kube-apiserver"); config.Minor(is) != 36 {
						t.Errorf("the API server of %s is %s", name, is)
					}
				}
				w.api.Failing = nil
				w.apply()
				w.settled()
				w.released(config.VersionsFor("v1.37.0"))
			})
		})
	}
}
