package step_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
)

const (
	proxyConf = "/etc/proxy.conf"
	loaded    = "/run/kubexm-proxy/loaded"
)

// proxied is a service that reads its configuration again. Its frame takes a restart.
func proxied(frame, config string) step.Service {
	s := unit("proxy")
	s.Reload = &step.Reload{
		Files: []step.File{{Path: proxyConf, Content: step.Content(config), Mode: 0o644}}, Frame: step.Content(frame),
		Check: "/opt/bin/proxy -t", Signal: "HUP",
	}
	return s
}

// earlier is the same service of a kubexm that could not reload it.
func earlier(config string) step.Service {
	s := unit("proxy")
	s.Files = []step.File{{Path: proxyConf, Content: step.Content(config), Mode: 0o644}}
	return s
}

// proxyRuns returns a host with a service that runs. Its program cannot use "bad" files.
func proxyRuns(t *testing.T, s step.Service) *runnertest.Host {
	t.Helper()
	h := hostFor(nil)
	h.Put("/opt/bin/proxy", "ELF", 0o755)
	h.Programs["proxy"] = func(c *runnertest.Call) int {
		if text, _ := h.Get(proxyConf); strings.Contains(text, "bad") {
			return c.Failf(1, "unknown word: bad")
		}
		return 0
	}
	if err := apply(t, h, s); err != nil {
		t.Fatal(err)
	}
	h.ClearLog()
	return h
}

// did are the restarts and reloads of the service.
func did(h *runnertest.Host) string {
	return strings.Join(slices.DeleteFunc(h.Log(), func(l string) bool { return l != "start proxy.service" && l != "reload proxy.service" }), ", ")
}

// TestReload disturbs a service that can read its configuration again, or wants something else of it.
func TestReload(t *testing.T) {
	const reload, restart = "reload proxy.service", "start proxy.service"
	sh := func(script string) func(*testing.T, *runnertest.Host) {
		return func(t *testing.T, h *runnertest.Host) {
			if _, err := h.Runner().Sh(t.Context(), script); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := sh("echo two >" + proxyConf)
	for name, c := range map[string]struct {
		was, is step.Service
		disturb func(*testing.T, *runnertest.Host)
		want    string
		diff    string
	}{
		"nothing":             {is: proxied("a", "one\n")},
		"other configuration": {is: proxied("a", "two\n"), want: reload, diff: "-one\n+two\nproxy: reload\n"},
		"other frame":         {is: proxied("b", "two\n"), want: restart, diff: "-one\n+two\n"},
		"other frame alone":   {is: proxied("b", "one\n"), want: restart},
		"other drop-in": {is: func() step.Service {
			s := proxied("a", "two\n")
			s.DropIn = append(s.DropIn, "User=proxy\n"...)
			return s
		}(), want: restart},
		"killed after the file":   {is: proxied("a", "two\n"), disturb: write, want: reload, diff: "proxy: " + proxyConf + " \""},
		"edited":                  {is: proxied("a", "one\n"), disturb: write, want: reload, diff: "+one\nproxy: reload\n"},
		"restarted with the file": {is: proxied("a", "two\n"), disturb: sh("echo two >" + proxyConf + "; systemctl restart proxy")},
		"restarted before":        {is: proxied("a", "two\n"), disturb: sh("systemctl restart proxy; echo two >" + proxyConf), want: reload},
		"rebooted":                {is: proxied("a", "two\n"), disturb: func(t *testing.T, h *runnertest.Host) { write(t, h); h.Reboot() }},
		"reloaded by hand, which nobody waited for": {is: proxied("a", "two\n"), disturb: sh("echo two >" + proxyConf + "; systemctl reload proxy"), want: reload},
		"reloaded by hand with another file, which was put back": {
			is: proxied("a", "one\n"), disturb: sh("echo two >" + proxyConf + "; systemctl reload proxy; echo one >" + proxyConf), want: reload, diff: `proxy.conf "" -> "`,
		},
		"stopped":              {is: proxied("a", "two\n"), disturb: sh("systemctl stop proxy"), want: restart},
		"nothing noted":        {is: proxied("a", "one\n"), disturb: sh("rm " + loaded), want: reload, diff: `proxy.conf "" -> "`},
		"of an earlier kubexm": {was: earlier("one\n"), is: proxied("a", "one\n")},
		"of an earlier kubexm, other configuration": {was: earlier("one\n"), is: proxied("a", "two\n"), want: restart},
		"of an earlier kubexm, file not read":       {was: earlier("one\n"), is: proxied("a", "two\n"), disturb: write, want: restart},
	} {
		t.Run(name, func(t *testing.T) {
			if c.was.Name == "" {
				c.was = proxied("a", "one\n")
			}
			h := proxyRuns(t, c.was)
			if c.disturb != nil {
				c.disturb(t, h)
				h.ClearLog()
			}
			change := check(t, h, c.is)
			if (change == nil) != (c.want == "") {
				t.Fatalf("got %+v, want %q", change, c.want)
			}
			if change == nil {
				return
			}
			if !strings.Contains(change.Diff, c.diff) || strings.HasSuffix(change.Diff, "proxy: reload\n") != (c.want == reload) {
				t.Errorf("diff:\n%s", change.Diff)
			}
			if change.Restarts != nil && c.want == reload {
				t.Errorf("announced restarts: %s", change.Restarts)
			}
			if err := apply(t, h, c.is); err != nil {
				t.Fatal(err)
			}
			if got := did(h); got != c.want {
				t.Errorf("did %q, want %q", got, c.want)
			}
			if again := check(t, h, c.is); again != nil {
				t.Errorf("there is something to do:\n%s", again.Diff)
			}
		})
	}
}

// TestReloadFails has files that the program cannot use, which the check sees or the program alone. It goes on with those that it has,
// also after the rollback.
func TestReloadFails(t *testing.T) {
	for name, c := range map[string]struct{ config, says string }{
		"check":   {"bad\n", "unknown word: bad"},
		"program": {"two\n", "no worker with the new files"},
	} {
		t.Run(name, func(t *testing.T) {
			h := proxyRuns(t, proxied("a", "one\n"))
			h.OnReload["proxy.service"] = func(h *runnertest.Host) error {
				if text, _ := h.Get(proxyConf); text != "one\n" {
					return errors.New("cannot allocate memory")
				}
				return nil
			}
			is := proxied("a", c.config)
			change := check(t, h, is)
			if err := change.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v", err)
			}
			if again := check(t, h, is); again == nil || again.Restarts != nil {
				t.Errorf("the next run does not try again: %+v", again)
			}
			if err := change.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if again := check(t, h, proxied("a", "one\n")); again != nil {
				t.Errorf("after the rollback:\n%s", again.Diff)
			}
			if strings.Contains(did(h), "start") {
				t.Errorf("restarted: %q", h.Log())
			}
		})
	}
}

// TestReloadCut cuts the power, or kubexm, at each moment of a reload, and of a restart for another frame: the next run finds what is left to do.
func TestReloadCut(t *testing.T) {
	for name, is := range map[string]step.Service{"reload": proxied("a", "two\n"), "restart": proxied("b", "two\n")} {
		for n := int64(1); ; n++ {
			h := proxyRuns(t, proxied("a", "one\n"))
			change := check(t, h, is)
			h.Cut = &runnertest.Kill{After: n}
			err := change.Run(t.Context())
			if err == nil {
				break
			}
			h.Reboot()
			if err := apply(t, h, is); err != nil {
				t.Fatalf("%s, cut at %d: %v", name, n, err)
			}
			sum, _ := h.Get(loaded)
			conf, _ := h.Get(proxyConf)
			if again := check(t, h, is); again != nil || conf != "two\n" || !strings.HasPrefix(sum, "27dd8ed44a83ff94") {
				t.Errorf("%s, cut at %d: %+v, loaded %s", name, n, again, sum)
			}
		}
	}
}

// TestReloadCutTwice kills kubexm in the middle of a reload, and again in one that takes it back: the process has one of them.
func TestReloadCutTwice(t *testing.T) {
	first, second := proxied("a", "two\n"), proxied("a", "one\n")
	for n := int64(1); ; n++ {
		done := false
		for m := int64(1); !done; m++ {
			h, has := proxyRuns(t, second), "one\n"
			h.OnReload["proxy.service"] = func(h *runnertest.Host) error {
				has, _ = h.Get(proxyConf)
				return nil
			}
			change := check(t, h, first)
			h.Cut = &runnertest.Kill{After: n}
			if change.Run(t.Context()) == nil {
				return
			}
			h.Cut = nil
			if change = check(t, h, second); change == nil {
				break
			}
			h.Cut = &runnertest.Kill{After: m}
			done = change.Run(t.Context()) == nil
			h.Cut = nil
			if err := apply(t, h, second); err != nil || has != "one\n" {
				t.Fatalf("cut at %d and %d: %v, the process has %q", n, m, err, has)
			}
		}
	}
}
