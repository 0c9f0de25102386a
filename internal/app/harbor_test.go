package app_test

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestHarbor has nodes take their images from Harbor, and looks into that.
func TestHarbor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "harbor"), "")
		w.hosts["node4"].Machine = "aarch64"
		a := w.attempt(t.Context())
		if _, err := a.App.Plan(a.ctx, a.Request, a.Observer, "create"); err == nil || !strings.Contains(err.Error(), "harbor is published for amd64 alone") {
			t.Errorf("for arm64: %v", err)
		}
		w.hosts["node4"].Machine = "x86_64"
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		pulled := slices.ContainsFunc(w.hosts["node2"].Log(), func(l string) bool { return strings.HasPrefix(l, "pull registry.k8s.io/pause:") })
		if !pulled {
			t.Errorf("node2 did: %q", w.hosts["node2"].Log())
		}
		look := w.attempt(t.Context())
		content, err := look.ListRegistry(look.ctx, look.Request, look.Observer)
		w.must(err)
		out, err := yaml.Marshal(content)
		w.must(err)
		golden.File(t, "testdata/registry/list.yaml", string(out)) // as in another registry
		for _, want := range []int{1, 0} {
			a := w.attempt(t.Context())
			if res, err := a.App.PushImages(a.ctx, a.Request, a.Observer, nil); err != nil || res.Summary.Changed != want {
				t.Errorf("push: %+v, %v; want %d changed", res, err, want)
			}
		}
		w.health()
		if is := w.status(w.attempt(t.Context())); !strings.Contains(is, "- healthy: true\n  host: node4\n  name: registry\n") {
			t.Errorf("status:\n%s", is)
		}

		w.configure(strings.Replace(row(t, "harbor"), "{type: harbor}", "{type: harbor, auth: {registry.kubexm.local: {username: admin, password: another}}}", 1))
		a = w.attempt(t.Context())
		_, err = a.create()
		if told := a.told(err); !strings.Contains(told, "refuses user admin") || !strings.Contains(told, "last log lines of harbor:") || strings.Contains(told, "another") {
			t.Errorf("with another password:\n%s", told)
		}
		w.configure(strings.Replace(row(t, "harbor"), "type: harbor", "type: registry", 1))
		for name, run := range map[string]func() (*app.Result, error){"create": w.attempt(t.Context()).create, "delete": w.attempt(t.Context()).delete} {
			if _, err := run(); err == nil || !strings.Contains(err.Error(), "registry.type: harbor -> registry") {
				t.Errorf("%s with another type: %v", name, err)
			}
		}
	})
}

// TestHarborChanges gives Harbor another version, then another certificate, and takes it from a machine with a Docker of others.
func TestHarborChanges(t *testing.T) {
	u := resourcetest.New()
	defer u.Close()
	bubble(t, func(t *testing.T) {
		older := strings.Replace(row(t, "harbor"), "{type: harbor}", "{type: harbor, harbor: {version: v2.15.1}}", 1)
		w := newWorld(t, older, u.Mirrors())
		w.hosts["node4"].Put("/run/nri/nri.sock", "", 0o600)
		w.hosts["node4"].Mount("shm", "/run/containerd/io.containerd.runtime.v2.task/moby/theirs", "tmpfs")
		before := w.hosts["node4"].Snapshot()
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		changes := func() (changed []string) {
			a := w.attempt(t.Context())
			_, err := a.create()
			w.must(err)
			for _, ev := range a.Events {
				if ev.Status == engine.Changed && ev.Host == "node4" {
					changed = append(changed, ev.What)
				}
			}
			return changed
		}
		w.configure(row(t, "harbor") + u.Mirrors())
		if got := changes(); !slices.Equal(got, []string{"record", "upload Harbor's installer", "files Harbor", "service harbor", "one release of Harbor", "remove what is no longer needed", "inventory"}) {
			t.Errorf("another version changed %q", got)
		}
		compose, _ := w.hosts["node4"].Get("/opt/harbor/docker-compose.yml")
		if !strings.Contains(compose, "goharbor/harbor-core:v2.15.2\n") {
			t.Errorf("runs %s", compose)
		}
		w.hosts["node4"].Put("/etc/registry/tls.crt", "of others", 0o644)
		if got := changes(); !slices.Equal(got, []string{"files Harbor"}) {
			t.Errorf("a file that others changed led to %q", got)
		}
		w.hosts["node4"].Remove("/opt/harbor/docker-compose.yml")
		if got := changes(); !slices.Equal(got, []string{"files Harbor"}) {
			t.Errorf("a file that others removed led to %q", got)
		}
		_, err = w.attempt(t.Context()).delete()
		w.must(err)
		same(t, "the machine after delete", before, w.hosts["node4"].Snapshot())
	})
}
