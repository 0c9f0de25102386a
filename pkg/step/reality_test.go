package step_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/racetest"
)

// TestKindsOnRealShells has the kinds that need no systemd, packages or kernel
// modules on real shells: the same diffs as in memory, nothing to do afterwards,
// and the same diff again after a rollback.
func TestKindsOnRealShells(t *testing.T) {
	racetest.Slow(t)
	needs := []string{"service", "packages", "modules", "timer"}
	for _, shell := range runnertest.Shells() {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			for name, k := range kinds {
				if kind, _, _ := strings.Cut(name, " "); k.prep != nil || strings.Contains(strings.Join(needs, " "), kind) {
					continue
				}
				s, h := runnertest.NewSandbox(t, shell), hostFor(nil)
				for _, p := range []string{"/etc/hosts", "/etc/hostname", "/etc/mark", "/srv/.keep"} {
					text, _ := h.Get(p)
					s.Put(p, text, 0o644)
				}
				for _, p := range []string{"net/ipv4/ip_forward", "net/ipv4/tcp_rmem", "vm/overcommit_memory"} {
					text, _ := h.Get("/proc/sys/" + p)
					s.Put("/proc/sys/"+p, text, 0o644)
				}
				want := check(t, h, k.step).Diff
				r := s.Runner()
				c, err := k.step.Precheck(t.Context(), r)
				if err != nil || c == nil || c.Diff != want {
					t.Errorf("%s: got %+v, %v, want\n%s", name, c, err, want)
					continue
				}
				if err := c.Run(t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if err := step.Verify(t.Context(), r, k.step, c); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if k.once {
					continue
				}
				if err := c.Rollback(t.Context()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if again, err := k.step.Precheck(t.Context(), r); err != nil || again == nil || again.Diff != want {
					t.Errorf("%s after a rollback: got %+v, %v, want\n%s", name, again, err, want)
				}
			}
		})
	}
}

// TestServiceStateOnRealShells lets systemctl say that a real process runs, and
// expects that its digest is found in its environment.
func TestServiceStateOnRealShells(t *testing.T) {
	h, service := hostFor(nil), unit("etcd")
	if err := apply(t, h, service); err != nil {
		t.Fatal(err)
	}
	text, _ := h.Get(dropIn)
	digest := strings.TrimSpace(text[strings.Index(text, "KUBEXM_DIGEST="):])
	program := filepath.Join(t.TempDir(), "program")
	place := func() {
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", `cp "$(command -v sleep)" "$0.new" && mv "$0.new" "$0"`, program).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, shell := range runnertest.Shells() {
		for env, current := range map[string]bool{digest: true, digest + "\n": true, digest + "\n\n": false, "KUBEXM_DIGEST=0ld": false, "OTHER=1": false} {
			s := runnertest.NewSandbox(t, shell)
			place()
			process := exec.CommandContext(t.Context(), program, "600")
			process.Env = append(os.Environ(), strings.TrimSpace(env))
			if err := process.Start(); err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(env, "\n") { // another file by now, of the same content or not
				place()
			}
			text, err := os.ReadFile(program)
			if err != nil {
				t.Fatal(err)
			}
			s.Put(program, string(text)+strings.Repeat("\n", max(0, strings.Count(env, "\n")-1)), 0o755)
			for _, p := range []string{dropIn, "/etc/systemd/system/etcd.service"} {
				text, _ := h.Get(p)
				s.Put(p, text, 0o644)
			}
			s.Put("/programs/systemctl", fmt.Sprintf(`#!/bin/sh
case "$*" in
"show etcd -p ActiveState,LoadState,UnitFileState,Environment,MainPID") echo UnitFileState=enabled; echo ActiveState=active; echo MainPID=%[1]d; echo "Environment=A=1 %[2]s";;
"show etcd -p MainPID") echo MainPID=%[1]d;;
*) exit 1;;
esac
`, process.Process.Pid, digest), 0o755)
			c, err := service.Precheck(t.Context(), s.Runner())
			if err != nil || current != (c == nil) {
				t.Errorf("%s, process with %s: got %+v, %v", shell, env, c, err)
			}
			if err := process.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = process.Wait() // it was killed
		}
	}
}
