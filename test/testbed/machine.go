package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kubexm/kubexm/test/testbed/build"
	"github.com/kubexm/kubexm/test/testbed/host"
)

// machine is what the first testbed found on this machine and the last one
// puts back. Nodes share one kernel: whatever they set outside their network
// namespaces they set for everybody.
type machine struct {
	Sysctl   map[string]string // of kernel, vm, fs, and ip_forward
	NetnsDir bool              // /run/netns was there
	Tables   string            // of the packet filter
}

// wanted is what several nodes on one kernel need.
var wanted = map[string]string{
	"net.ipv4.ip_forward":           "1",
	"fs.inotify.max_user_instances": "8192",
	"fs.inotify.max_user_watches":   "1048576",
}

// volatile settings change by themselves, do something when written, or cannot be set back before the next boot.
var volatile = []string{"kernel.unprivileged_bpf_disabled", "kernel.random.", "kernel.ns_last_pid", "kernel.tainted", "kernel.pty.nr", "fs.dentry-state", "fs.file-nr", "fs.inode-", "fs.aio-nr", "fs.quota.", "vm.stat_refresh"}

// remember notes how this machine was, unless that is done, and sets what nodes need.
func (t *Testbed) remember(ctx context.Context) error {
	unlock, err := build.LockFile(ctx, machineFile()+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(machineFile()); gone(err) {
		found := machine{Sysctl: sysctls(ctx)}
		_, err := os.Stat("/run/netns")
		found.NetnsDir = err == nil
		if found.Tables, err = host.Run(ctx, "nft", "list", "tables"); err != nil {
			return err
		}
		b, err := json.Marshal(found)
		if err != nil {
			return err
		}
		if err := os.WriteFile(machineFile(), b, 0o644); err != nil {
			return fmt.Errorf("noting the state of this machine: %w", err)
		}
	}
	for name, value := range wanted {
		if err := setSysctl(name, value); err != nil {
			return err
		}
	}
	return nil
}

// restore puts this machine back when no testbed is left on it.
func (t *Testbed) restore(ctx context.Context) error {
	unlock, err := build.LockFile(ctx, machineFile()+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	testbeds, _ := filepath.Glob(filepath.Join(stateRoot(), "*", "ssh"))
	locks, _ := filepath.Glob(filepath.Join(stateRoot(), "*.lock"))
	if len(testbeds) > 0 || len(locks) > 1 {
		return nil
	}
	defer os.Remove(stateRoot())
	defer os.Remove(machineFile() + ".lock")
	b, err := os.ReadFile(machineFile())
	if gone(err) {
		return nil
	}
	var before machine
	if err == nil {
		err = json.Unmarshal(b, &before)
	}
	if err != nil {
		return fmt.Errorf("reading how this machine was: %w", err)
	}
	for name, now := range sysctls(ctx) {
		if was, ok := before.Sysctl[name]; ok && was != now {
			if err := setSysctl(name, was); err != nil {
				t.logf("not put back: %v", err)
			}
		}
	}
	now, _ := host.Run(ctx, "nft", "list", "tables")
	for _, table := range []string{"ip filter", "ip nat", "ip6 filter"} {
		family, name, _ := strings.Cut(table, " ")
		rules, err := host.Run(ctx, family+"tables-save", "-t", name)
		made := strings.Contains(now, "table "+table+"\n") && !strings.Contains(before.Tables, "table "+table+"\n")
		if err != nil || !made || strings.Contains(rules, "\n-A ") {
			continue
		}
		if err := command(ctx, "nft delete table "+table); err != nil {
			t.logf("not put back: %v", err)
		}
	}
	if left, _ := os.ReadDir("/run/netns"); !before.NetnsDir && len(left) == 0 {
		unix.Unmount("/run/netns", 0)
		os.Remove("/run/netns")
	}
	return os.Remove(machineFile())
}

func machineFile() string { return filepath.Join(stateRoot(), "machine.json") }

// sysctls reads the settings that all nodes share.
func sysctls(ctx context.Context) map[string]string {
	out, _ := host.Run(ctx, "sysctl", "-a", "-r", `^(kernel|vm|fs|net\.ipv4\.ip_forward$)`) // fails on write-only ones
	all := map[string]string{}
lines:
	for line := range strings.Lines(out) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " = ")
		for _, v := range volatile {
			if !ok || strings.HasPrefix(name, v) {
				continue lines
			}
		}
		all[name] = value
	}
	return all
}

func setSysctl(name, value string) error {
	path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("setting %s to %s: %w", name, value, err)
	}
	return nil
}
