package step_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

const dropIn = "/etc/systemd/system/etcd.service.d/kubexm-etcd.conf"

// reading is the service etcd, which reads a configuration file.
func reading(config string) (file step.File, service step.Service) {
	file = step.File{Path: "/etc/etcd.conf", Content: step.Content(config), Mode: 0o644}
	service = unit("etcd")
	service.Reads = []step.Step{file}
	return file, service
}

// running returns a host where etcd runs with a configuration.
func running(t *testing.T, config string) *runnertest.Host {
	t.Helper()
	h := hostFor(nil)
	file, service := reading(config)
	for _, s := range []step.Step{file, service} {
		if err := apply(t, h, s); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func starts(h *runnertest.Host) (n int) {
	for _, l := range h.Log() {
		if l == "start etcd.service" {
			n++
		}
	}
	return n
}

// TestServiceRestarts disturbs a running service, and wants it put right by one restart.
func TestServiceRestarts(t *testing.T) {
	edit := func(old, new string) func(*testing.T, *runnertest.Host) {
		return func(t *testing.T, h *runnertest.Host) {
			text, ok := h.Get(dropIn)
			if !ok || !strings.Contains(text, old) {
				t.Fatalf("no %q in %q", old, text)
			}
			h.Put(dropIn, strings.Replace(text, old, new, 1), 0o644)
		}
	}
	sh := func(script string) func(*testing.T, *runnertest.Host) {
		return func(t *testing.T, h *runnertest.Host) {
			if _, err := h.Runner().Sh(t.Context(), script); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		disturb func(*testing.T, *runnertest.Host)
		diff    string
		none    bool // there is nothing to do
	}{
		"undisturbed":       {disturb: func(*testing.T, *runnertest.Host) {}, none: true},
		"rebooted":          {disturb: func(_ *testing.T, h *runnertest.Host) { h.Reboot() }, none: true},
		"restarted by hand": {disturb: sh("systemctl restart etcd"), none: true},
		"stopped":           {disturb: sh("systemctl stop etcd"), diff: `ActiveState "inactive" -> "active"`},
		"disabled":          {disturb: sh("systemctl disable etcd"), diff: `UnitFileState "disabled" -> "enabled"`},
		"drop-in changed":   {disturb: edit("--flag", "--other"), diff: "--flag"},
		"drop-in changed and in force": {disturb: func(t *testing.T, h *runnertest.Host) {
			edit("--flag", "--other")(t, h)
			sh("systemctl daemon-reload; systemctl restart etcd")(t, h)
		}, diff: "--flag"},
		"drop-in gone":                     {disturb: sh("rm " + dropIn), diff: "--flag"},
		"digest in the drop-in changed":    {disturb: edit("KUBEXM_DIGEST=", "KUBEXM_DIGEST=old"), diff: "KUBEXM_DIGEST=old"},
		"unit changed":                     {disturb: sh("echo >>/etc/systemd/system/etcd.service"), diff: "+++ /etc/systemd/system/etcd.service"},
		"another drop-in without a reload": {disturb: sh(`echo '[Service]' >/etc/systemd/system/etcd.service.d/z.conf`), none: true},
		"older unit in force": {disturb: func(t *testing.T, h *runnertest.Host) {
			text, _ := h.Get(dropIn)
			h.Put(dropIn, strings.Replace(text, "KUBEXM_DIGEST=", "KUBEXM_DIGEST=0ld", 1), 0o644)
			sh("systemctl daemon-reload")(t, h)
			h.Put(dropIn, text, 0o644)
		}, diff: `loaded unit "0ld`},
		"process started with an older drop-in": {disturb: olderProcess, diff: `KUBEXM_DIGEST "0ld" -> `},
		"program replaced":                      {disturb: sh("cp -a /opt/bin/etcd /opt/bin/new; echo >>/opt/bin/new; mv -f /opt/bin/new /opt/bin/etcd"), diff: `program "replaced" -> ""`},
		"program put there again":               {disturb: sh("cp -a /opt/bin/etcd /opt/bin/new; mv -f /opt/bin/new /opt/bin/etcd"), none: true},
		"process has died and is not to be seen": {disturb: func(_ *testing.T, h *runnertest.Host) {
			h.Reboot()
			sh("systemctl stop etcd; systemctl reset-failed etcd")(t, h)
		}, diff: "inactive"},
	} {
		t.Run(name, func(t *testing.T) {
			h := running(t, "one")
			_, service := reading("one")
			c.disturb(t, h)
			change := check(t, h, service)
			if c.none {
				if change != nil {
					t.Errorf("there is something to do:\n%s", change.Diff)
				}
				return
			}
			if change == nil || !strings.Contains(change.Diff, c.diff) {
				t.Fatalf("no %q in %+v", c.diff, change)
			}
			h.ClearLog()
			if err := apply(t, h, service); err != nil {
				t.Fatal(err)
			}
			if n := starts(h); n != 1 {
				t.Errorf("started %d times", n)
			}
			if strings.Contains(change.Diff, "+++ ") && !slices.ContainsFunc(h.Log(), func(l string) bool { return strings.HasSuffix(l, "daemon-reload") }) {
				t.Errorf("started as systemd knew it, not as its files are: %q", h.Log())
			}
		})
	}
}

// olderProcess lets the process be one that was started before the files changed.
func olderProcess(t *testing.T, h *runnertest.Host) {
	text, _ := h.Get(dropIn)
	digest := text[strings.Index(text, "KUBEXM_DIGEST=")+len("KUBEXM_DIGEST="):]
	h.Put(dropIn, strings.Replace(text, strings.TrimSpace(digest), "0ld", 1), 0o644)
	if _, err := h.Runner().Sh(t.Context(), "systemctl daemon-reload; systemctl restart etcd"); err != nil {
		t.Fatal(err)
	}
	h.Put(dropIn, text, 0o644)
	if _, err := h.Runner().Sh(t.Context(), "systemctl daemon-reload"); err != nil {
		t.Fatal(err)
	}
}

// TestServiceReads changes what the process reads. A crash between the write of
// the file and the restart heals on the next run.
func TestServiceReads(t *testing.T) {
	h := running(t, "one")
	file, service := reading("two")
	if err := apply(t, h, file); err != nil { // and then kubexm dies
		t.Fatal(err)
	}
	h.ClearLog()
	if c := check(t, h, file); c != nil {
		t.Fatal("the file is not in place")
	}
	if err := apply(t, h, service); err != nil {
		t.Fatal(err)
	}
	if starts(h) != 1 {
		t.Errorf("the process was not restarted: %q", h.Log())
	}
	if c := check(t, h, service); c != nil {
		t.Errorf("there is something to do:\n%s", c.Diff)
	}
}

// TestServiceHeld has a service that someone else starts the first time.
func TestServiceHeld(t *testing.T) {
	h := hostFor(nil)
	service := unit("kubelet")
	service.Hold = []string{"/etc/kubelet.conf"}
	if err := apply(t, h, service); err != nil {
		t.Fatal(err)
	}
	if got := h.Unit("kubelet"); got != "inactive enabled" {
		t.Errorf("kubelet is %s", got)
	}
	if err := h.Start("kubelet"); err != nil {
		t.Fatal(err)
	}
	if c := check(t, h, service); c != nil {
		t.Errorf("there is something to do:\n%s", c.Diff)
	}
	service.DropIn = step.Content("[Service]\nExecStart=/opt/bin/kubelet --more\n")
	if err := apply(t, h, service); err != nil {
		t.Fatal(err)
	}
	if got := h.Unit("kubelet"); got != "active enabled" || check(t, h, service) != nil {
		t.Errorf("kubelet is %s, with the old command line", got)
	}
	h.Put("/etc/kubelet.conf", "", 0o600)
	if _, err := h.Runner().Sh(t.Context(), "systemctl stop kubelet"); err != nil {
		t.Fatal(err)
	}
	if err := apply(t, h, service); err != nil {
		t.Fatal(err)
	}
	if got := h.Unit("kubelet"); got != "active enabled" {
		t.Errorf("kubelet is %s, though it was configured", got)
	}
}

func TestServiceFails(t *testing.T) {
	h := hostFor(nil)
	h.OnStart["etcd.service"] = func(*runnertest.Host) error { return errors.New("listen tcp :2379: address already in use") }
	err := apply(t, h, unit("etcd"))
	if err == nil || !strings.Contains(err.Error(), "last log lines of etcd:\nlisten tcp :2379: address already in use") {
		t.Errorf("got %v", err)
	}
	delete(h.OnStart, "etcd.service")
	if err := apply(t, h, unit("etcd")); err != nil {
		t.Errorf("the next run: %v", err)
	}
	h.Remove("/opt/bin/etcd")
	if _, err := h.Runner().Sh(t.Context(), "systemctl stop etcd"); err != nil {
		t.Fatal(err)
	}
	if err := apply(t, h, unit("etcd")); err == nil || !strings.Contains(err.Error(), "unable to locate executable '/opt/bin/etcd'") {
		t.Errorf("got %v", err)
	}
}

// TestServiceRollback finds a service in every state and leaves it in the same.
func TestServiceRollback(t *testing.T) {
	for name, script := range map[string]string{
		"active":   "true",
		"inactive": "systemctl stop etcd",
		"disabled": "systemctl disable etcd",
		"neither":  "systemctl disable --now etcd",
	} {
		t.Run(name, func(t *testing.T) {
			h := running(t, "one")
			if _, err := h.Runner().Sh(t.Context(), script); err != nil {
				t.Fatal(err)
			}
			before := h.Snapshot()
			s := unit("etcd")
			s.DropIn = step.Content("[Service]\nExecStart=/opt/bin/etcd --broken\n")
			c := check(t, h, s)
			h.OnStart["etcd.service"] = func(h *runnertest.Host) error {
				if text, _ := h.Get(dropIn); strings.Contains(text, "--broken") {
					return errors.New("unknown flag: --broken")
				}
				return nil
			}
			if c.Run(t.Context()) == nil {
				t.Fatal("a broken service started")
			}
			if err := c.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.Resume != nil {
				if err := c.Resume(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			after := ours.ReplaceAllString(h.Snapshot(), "")
			if want := ours.ReplaceAllString(before, ""); after != want {
				t.Errorf("before:\n%s\nafter:\n%s", want, after)
			}
		})
	}
}

// TestServiceOnOldSystemd has a systemctl without --value (CentOS 7).
func TestServiceOnOldSystemd(t *testing.T) {
	h := hostFor(nil)
	h.Systemd = 219
	if err := apply(t, h, unit("etcd")); err != nil {
		t.Fatal(err)
	}
	if c := check(t, h, unit("etcd")); c != nil {
		t.Errorf("there is something to do:\n%s", c.Diff)
	}
}

func TestUnit(t *testing.T) {
	u := step.Unit{
		Name: "etcd", Description: "key-value store", Documentation: "https://etcd.io/docs", After: "network-online.target",
		Before: []string{"/bin/true"}, Command: "/opt/bin/etcd", Args: map[string]string{"name": "node1", "data-dir": "/var/lib/etcd"},
		Settings: append(step.HoldsContainers(), step.Limits(true, "-999")...), Hold: []string{"/etc/begun"},
	}
	s := u.Service()
	golden.Equal(t, string(s.Unit), "unit")
	golden.Equal(t, string(s.DropIn), "drop-in")
	if s.Hold == nil || s.Name != "etcd" || step.Limits(false, "-999") != nil {
		t.Errorf("got %+v", s)
	}
	h := hostFor(nil)
	u.Hold = nil
	u.Before = nil
	if err := apply(t, h, u.Service()); err != nil {
		t.Error(err)
	}
}
