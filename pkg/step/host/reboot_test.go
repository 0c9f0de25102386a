package host_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/host"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestRestarted restarts machines for every reason, and no other.
func TestRestarted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prep func(h *runnertest.Host)
		step host.Restarted
		want string // the diff
	}{
		"nothing":              {step: host.Restarted{Own: true}},
		"the kernel runs":      {func(h *runnertest.Host) { h.Put("/boot/vmlinuz-"+h.Kernel, "ELF", 0o644) }, host.Restarted{Own: true}, ""},
		"newer kernel":         {newer, host.Restarted{Own: true}, "restart the machine: kernel 6.10.0-1-amd64 is installed, 6.1.0-37-amd64 runs"},
		"kernel of a host":     {newer, host.Restarted{}, ""},
		"note of Debian":       {func(h *runnertest.Host) { h.Put("/run/reboot-required", "", 0o644) }, host.Restarted{}, "restart the machine: /run/reboot-required is there"},
		"program of Red Hat":   {func(h *runnertest.Host) { h.Commands["needs-restarting"] = says(1) }, host.Restarted{}, "restart the machine: needs-restarting -r says so"},
		"which sees no reason": {func(h *runnertest.Host) { h.Commands["needs-restarting"] = says(0) }, host.Restarted{}, ""},
		"asked for":            {nil, host.Restarted{Since: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}, "restart the machine: it is asked for"},
		"restarted since":      {nil, host.Restarted{Since: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := runnertest.Debian12("node1")
				if test.prep != nil {
					test.prep(h)
				}
				c, err := test.step.Precheck(t.Context(), h.Runner())
				if err != nil || c == nil || c.Diff != test.want {
					if err != nil || c != nil || test.want != "" {
						t.Errorf("%+v, %v", c, err)
					}
					return
				}
				begun := time.Now()
				if err := c.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun); h.Restarts() != 1 || took < 20*time.Second || took > time.Minute {
					t.Errorf("restarted %d times in %s", h.Restarts(), took)
				}
			})
		})
	}
}

func newer(h *runnertest.Host) {
	for _, k := range []string{"6.1.0-37-amd64", "6.2.0-1-amd64", "6.10.0-1-amd64", "0-rescue-abc"} {
		h.Put("/boot/vmlinuz-"+k, "ELF", 0o644)
	}
}

func says(status int) runnertest.Command { return func(*runnertest.Call) int { return status } }

// TestNotBack has machines that do not come back, that do not stop, and that start the old kernel again.
func TestNotBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(h *runnertest.Host)
		want  string
	}{
		"dead":       {func(h *runnertest.Host) { h.BootTime = -1 }, "the machine is not back 15m00s after it was told to restart: node1: connection lost"},
		"stays":      {func(h *runnertest.Host) { h.Commands["systemd-run"] = says(0) }, "the machine is not back 15m00s after it was told to restart: it has not stopped yet"},
		"old kernel": {func(h *runnertest.Host) { h.Commands["uname"] = says(0) }, "the machine has restarted, but kernel 6.10.0-1-amd64 is installed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := runnertest.Debian12("node1")
				newer(h)
				test.spoil(h)
				c, err := host.Restarted{Own: true}.Precheck(t.Context(), h.Runner())
				if err != nil || c == nil {
					t.Fatalf("%+v, %v", c, err)
				}
				if err := c.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), test.want) || !strings.Contains(fault.Advice(err), "run the same command again") {
					t.Errorf("it ended with %v (%s)", err, fault.Advice(err))
				}
				if name != "old kernel" {
					return
				}
				if c, err := (host.Restarted{Own: true}).Precheck(t.Context(), h.Runner()); c != nil || err != nil {
					t.Errorf("it is restarted again, for nothing: %+v, %v", c, err)
				}
				c, err = host.Restarted{Own: true, Since: time.Now().Add(time.Hour)}.Precheck(t.Context(), h.Runner())
				if err != nil || c == nil || strings.Contains(c.Diff, "kernel") {
					t.Fatalf("where it is asked for: %+v, %v", c, err)
				}
				if err := c.Run(t.Context()); err != nil {
					t.Errorf("it fails again: %v", err)
				}
				h.Put("/boot/vmlinuz-6.12.0-1-amd64", "ELF", 0o644)
				if c, err := (host.Restarted{Own: true}).Precheck(t.Context(), h.Runner()); err != nil || c == nil {
					t.Errorf("with another kernel: %+v, %v", c, err)
				}
			})
		})
	}
}

// TestUpdated has the packages of kernels by their names in each family.
func TestUpdated(t *testing.T) {
	for manager, want := range map[string]string{"apt": "linux-image-* linux-headers-*", "dnf": "kernel*", "yum": "kernel*"} {
		c := clustertest.New(t, "", func(_ string, f *runner.Facts) { f.PackageManager = manager })
		steps := host.Updated(c, "node1", host.Update{Kernel: true})
		newest, ok := step.Unwrap(steps[0]).(step.Newest)
		if !ok || strings.Join(newest.Names, " ") != want || len(steps) != 2 {
			t.Errorf("%s: %+v", manager, steps)
		}
		if steps = host.Updated(c, "node1", host.Update{Reboot: host.RebootNever}); len(steps) != 1 {
			t.Errorf("%s, without a restart: %+v", manager, steps)
		}
	}
}

// TestNextKernel finds on real shells the kernel that starts next.
func TestNextKernel(t *testing.T) {
	for _, shell := range runnertest.Shells() {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := runnertest.NewSandbox(t, shell)
			for _, k := range []string{"6.1.0-37-amd64", "6.2.0-1-amd64", "6.10.0-1-amd64", "0-rescue-abc"} {
				s.Put("/boot/vmlinuz-"+k, "ELF", 0o644)
			}
			s.Put("/proc/sys/kernel/random/boot_id", "1-2\n", 0o644)
			s.Put("/programs/uname", "#!/bin/sh\necho 6.2.0-1-amd64\n", 0o755)
			look := func(want string) {
				t.Helper()
				c, err := host.Restarted{Own: true}.Precheck(t.Context(), s.Runner())
				if err != nil || c == nil != (want == "") || c != nil && c.Diff != want {
					t.Errorf("%+v, %v", c, err)
				}
			}
			look("restart the machine: kernel 6.10.0-1-amd64 is installed, 6.2.0-1-amd64 runs")
			s.Put("/programs/grubby", "#!/bin/sh\necho /boot/vmlinuz-6.2.0-1-amd64\n", 0o755)
			look("")
			s.Put("/programs/needs-restarting", "#!/bin/sh\nexit 1\n", 0o755)
			look("restart the machine: needs-restarting -r says so")
		})
	}
}
