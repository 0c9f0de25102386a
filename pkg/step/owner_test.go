package step_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
)

// TestOwnsWhatIsNoted runs each kind: what the ledger has then of what is pruned is what the step owns.
func TestOwnsWhatIsNoted(t *testing.T) {
	for name, s := range map[string]step.Step{
		"file":    step.File{Path: "/etc/x/y", Content: step.Content("x"), Mode: 0o644},
		"files":   step.Files{List: []step.File{{Path: "/etc/x", Mode: 0o644}}, Also: []step.Command{{Unless: "false", Run: "keep /etc/z", Makes: []string{"path /etc/z"}}}},
		"block":   step.Block{Path: "/etc/block", Begin: "B", End: "E", Mode: 0o644},
		"dir":     step.Dir{Path: "/srv/x", Mode: 0o700},
		"service": step.With(step.Service{Name: "x", Unit: step.Content("[Service]\nExecStart=/usr/sbin/sshd\n[Install]\nWantedBy=multi-user.target\n"), DropIn: step.Content("[Service]\n")}, step.Options{}),
		"modules": step.Modules{Path: "/etc/modules-load.d/x.conf", Names: []string{"overlay"}},
		"sysctl":  step.Sysctl{Path: "/etc/sysctl.d/x.conf", Values: map[string]string{"vm.swappiness": "1"}},
	} {
		h := runnertest.Debian12("node1")
		if c := check(t, h, s); c.Run(t.Context()) != nil {
			t.Fatalf("%s: did not run", name)
		}
		lines, err := h.Runner().Ledger(t.Context())
		keys, err2 := step.Owns(s)
		if err != nil || err2 != nil || len(lines) == 0 {
			t.Fatalf("%s: %v, %v, %v", name, lines, err, err2)
		}
		for i, l := range lines {
			lines[i] = runner.Key(l)
		}
		if gone := step.Gone(lines, keys); gone != nil {
			t.Errorf("%s: owns %q, and not %q", name, keys, gone)
		}
		for _, l := range lines {
			if !strings.HasPrefix(l, "dir ") && !slices.Contains(keys, l) {
				t.Errorf("%s: does not own %q", name, l)
			}
		}
	}
	upload := step.Upload{Programs: []step.Programs{
		{Artifact: resource.Artifact{Component: "etcd"}, Dir: "/usr/local/bin"},
		{Artifact: resource.Artifact{Component: "runc"}, Dir: "/opt/"},
		{Artifact: resource.Artifact{Component: "cni-plugins"}, Dir: "/opt/cni/bin"},
	}}
	got, err := step.Owns(upload)
	want := []string{"path /usr/local/bin/etcd", "path /usr/local/bin/etcdctl", "path /usr/local/bin/etcdutl", "path /opt/runc", "path /opt/cni/bin/[a-z]*"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestGone(t *testing.T) {
	owned := []string{"path /etc/a/b/c", "path /opt/bin/[a-z]*", "block /etc/d/hosts\tB\tE", "unit etcd", "package socat", "dir /srv/x"}
	for _, c := range []struct{ has, gone []string }{
		{has: owned},
		{[]string{"dir /etc/a", "dir /etc/a/b", "dir /etc/d", "dir /srv", "path /opt/bin/tool"}, nil},
		{[]string{"path /etc/a/b/old", "path /etc/old/x/y"}, []string{"path /etc/a/b/old", "path /etc/old/x/y", "dir /etc/old/x", "dir /etc/old"}},
		{[]string{"unit haproxy", "service haproxy", "package haproxy"}, []string{"unit haproxy", "service haproxy", "package haproxy"}},
		{[]string{"swap /dev/vda2", "selinux now", "sysctl vm/swappiness", "module overlay", "fstab /etc/fstab", "mode /srv/x", "lost ntp"}, nil},
		{[]string{"dir /srv/x/y", "path /opt/bin/a/b"}, []string{"dir /srv/x/y", "path /opt/bin/a/b", "dir /opt/bin/a"}},
	} {
		if diff := cmp.Diff(c.gone, step.Gone(c.has, owned)); diff != "" {
			t.Errorf("%q: %s", c.has, diff)
		}
	}
}

// TestAbsent takes back a service with its package, of which others need one part.
func TestAbsent(t *testing.T) {
	h := runnertest.Debian12("node1")
	r := h.Runner()
	h.Put("/etc/own", "theirs", 0o644)
	h.Put("/etc/never", "theirs", 0o644)
	unit := step.Service{Name: "x", Unit: step.Content("[Service]\nExecStart=/usr/sbin/sshd\n[Install]\nWantedBy=multi-user.target\n"), DropIn: step.Content("[Service]\n")}
	for _, s := range []step.Step{unit, step.File{Path: "/etc/own", Content: step.Content("ours"), Mode: 0o600}, step.File{Path: "/opt/bin/one", Mode: 0o755}, step.File{Path: "/opt/bin/two", Mode: 0o755}} {
		if err := apply(t, h, s); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := step.Owns(unit)
	if err != nil {
		t.Fatal(err)
	}
	a := step.Absent{What: "x", Items: append(keys, "path /etc/own", "path /etc/never", "path /opt/bin/*"), Except: []string{"path /opt/bin/two"}}
	trips := r.RoundTrips()
	c, err := a.Precheck(t.Context(), r)
	if err != nil || r.RoundTrips() != trips+1 || strings.Contains(c.Diff, "never") || strings.Contains(c.Diff, "two") || !strings.Contains(c.Diff, "- unit x\n") || c.Rollback != nil {
		t.Fatalf("%+v, %v", c, err)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	own, _ := h.Get("/etc/own")
	never, _ := h.Get("/etc/never")
	if own+never != "theirstheirs" || h.Mode("/opt/bin/one") != 0 || h.Mode("/opt/bin/two") == 0 || h.Mode("/etc/systemd/system/x.service") != 0 || h.Unit("x") == "active" {
		t.Errorf("is not as before: %q %q %s", own, never, h.Unit("x"))
	}
	if again, err := a.Precheck(t.Context(), r); again != nil || err != nil {
		t.Errorf("again: %+v, %v", again, err)
	}
}
