package testbed

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/test/testbed/build"
	"github.com/kubexm/kubexm/test/testbed/host"
)

// Options say what Up makes.
type Options struct {
	Nodes int    // 1 to 244
	OS    string // debian12 (also when empty), debian13, or mixed: one after the other
	User  string // account that SSH sessions and configurations use; one of Accounts, root when empty

	Family string // of addresses, one of Families; empty: what the testbed has, or IPv4
}

// memoryPerNode is what a booted node with a kubelet and a few pods takes.
const memoryPerNode = 400 << 20

func (o *Options) check() error {
	if o.OS == "" {
		o.OS = "debian12"
	}
	if o.User == "" {
		o.User = "root"
	}
	switch {
	case o.Nodes < 1 || o.Nodes > 244:
		return fmt.Errorf("%d nodes: want 1 to 244, the addresses .11 to .254", o.Nodes)
	case !slices.Contains(Accounts, o.User):
		return fmt.Errorf("no such account %q on nodes: want one of %s", o.User, strings.Join(Accounts, ", "))
	case o.Family != "" && !slices.Contains(Families, o.Family):
		return fmt.Errorf("no such family %q: want one of %s", o.Family, strings.Join(Families, ", "))
	case o.OS != "mixed" && codenames[o.OS] == "":
		return fmt.Errorf("no such system %q: want debian12, debian13 or mixed", o.OS)
	}
	return nil
}

// system is the operating system of the i-th node.
func (o Options) system(i int) string {
	if o.OS != "mixed" {
		return o.OS
	}
	return []string{"debian12", "debian13"}[(i-1)%2]
}

// Up makes sure that the nodes 1 to o.Nodes exist and run, and returns them.
// Nodes that are there stay as they are.
func (t *Testbed) Up(ctx context.Context, o Options) ([]Node, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := t.Fit(ctx, o); err != nil {
		return nil, err
	}
	unlock, err := t.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	begin := time.Now()
	nodes, err := t.prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(2 * runtime.NumCPU())
	for _, n := range nodes {
		group.Go(func() error { return t.Start(gctx, n) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	t.logf("testbed %s: %d nodes up after %.1f s", t.Name, len(nodes), time.Since(begin).Seconds())
	return nodes, nil
}

// prepare makes everything but running nodes.
func (t *Testbed) prepare(ctx context.Context, o Options) ([]Node, error) {
	bases := map[string]string{}
	for i := 1; i <= min(2, o.Nodes); i++ {
		base, err := t.base(ctx, o.system(i))
		if err != nil {
			return nil, err
		}
		bases[o.system(i)] = base
	}
	if err := t.remember(ctx); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(t.KeyFile()), 0o755); err != nil {
		return nil, fmt.Errorf("making testbed %s: %w", t.Name, err)
	}
	if err := t.set(o); err != nil {
		return nil, fmt.Errorf("making testbed %s: %w", t.Name, err)
	}
	if err := makeKey(t.KeyFile(), "testbed-"+t.Name); err != nil {
		return nil, fmt.Errorf("making testbed %s: %w", t.Name, err)
	}
	if err := t.netUp(ctx); err != nil {
		return nil, err
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(2 * runtime.NumCPU())
	for i := 1; i <= o.Nodes; i++ {
		n := t.node(i, o.system(i), bases[o.system(i)])
		if _, err := os.Stat(t.dir(n.Name, "node.json")); err == nil {
			continue
		}
		group.Go(func() error { return t.create(gctx, n) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	nodes, err := t.Nodes()
	if err != nil {
		return nil, err
	}
	return nodes[:o.Nodes], t.knownHosts(nodes)
}

// set notes what other commands need to know. A testbed keeps its family.
func (t *Testbed) set(o Options) error {
	s, file := settings{User: o.User, Family: o.Family}, filepath.Join(t.Dir, "settings.json")
	if _, err := os.Stat(file); err == nil {
		if s.Family = t.Family(); o.Family != "" && o.Family != s.Family {
			return fault.Advise(fmt.Errorf("it has %s addresses already", s.Family), "take it away first: testbed down")
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

// Fit says what this machine lacks for o.
func (t *Testbed) Fit(ctx context.Context, o Options) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("the testbed needs Linux")
	}
	if err := host.Root(); err != nil {
		return err
	}
	if err := host.Require(ctx, t.Out, host.ForNodes...); err != nil {
		return err
	}
	if _, err := cgroups(); err != nil {
		return err
	}
	kinds, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("reading the kernel's file systems: %w", err)
	}
	if !strings.Contains(string(kinds), "\toverlay\n") && command(ctx, "modprobe overlay") != nil {
		return fmt.Errorf("this kernel has no overlay file system")
	}
	for _, dir := range []string{filepath.Dir(t.Dir), t.Cache.Dir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making directories: %w", err)
		}
	}
	if err := host.Free(filepath.Dir(t.Dir), uint64(2+o.Nodes)<<30); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(t.Dir), &st); err == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fault.Advise(fmt.Errorf("%s lies on an overlay file system, which cannot carry nodes", filepath.Dir(t.Dir)),
			"point KUBEXM_TESTBED_STATE to another disk")
	}
	if free := memoryAvailable(); free < o.Nodes*memoryPerNode {
		return fmt.Errorf("%d nodes need about %d MB of memory, %d MB are available", o.Nodes, o.Nodes*memoryPerNode>>20, free>>20)
	}
	return nil
}

// memoryAvailable is MemAvailable of /proc/meminfo in bytes.
func memoryAvailable() int {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var kb int
		if _, err := fmt.Sscanf(s.Text(), "MemAvailable: %d kB", &kb); err == nil {
			return kb << 10
		}
	}
	return 0
}

// lock keeps other commands from changing this testbed meanwhile.
func (t *Testbed) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(t.Dir), 0o755); err != nil {
		return nil, fmt.Errorf("locking testbed %s: %w", t.Name, err)
	}
	return build.LockFile(ctx, t.Dir+".lock")
}
