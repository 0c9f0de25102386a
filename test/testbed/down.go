package testbed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/kubexm/kubexm/test/testbed/host"
)

var nodeForm = regexp.MustCompile(`^node[0-9]+$`)

// Down removes the named nodes, or the whole testbed when none is named:
// processes, mounts, namespaces, interfaces, cgroups, rules and files. What is
// there is asked of the kernel and the disk, so that it also clears up after a
// process that was killed. Removing what is not there is no error.
func (t *Testbed) Down(ctx context.Context, names ...string) error {
	if err := host.Root(); err != nil {
		return err
	}
	for _, n := range names {
		if !nodeForm.MatchString(n) {
			return fmt.Errorf("removing %q: nodes are called node1, node2 and so on", n)
		}
	}
	unlock, err := t.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	all := len(names) == 0
	if all {
		names = t.traces()
	}
	var group errgroup.Group
	for _, node := range names {
		group.Go(func() error { return t.remove(ctx, node) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if !all {
		return nil
	}
	if err := endDetached(ctx, t.mirrorBase()); err != nil {
		return err
	}
	if err := t.netDown(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(t.Dir); err != nil {
		return fmt.Errorf("removing testbed %s: %w", t.Name, err)
	}
	if err := os.Remove(t.Dir + ".lock"); err != nil {
		return fmt.Errorf("removing testbed %s: %w", t.Name, err)
	}
	return t.restore(ctx)
}

// traces lists every node that has left anything anywhere.
func (t *Testbed) traces() []string {
	nodes := append(t.plugged(), t.grouped()...)
	entries, _ := os.ReadDir(t.nodes())
	for _, e := range entries {
		nodes = append(nodes, e.Name())
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// remove takes one node away.
func (t *Testbed) remove(ctx context.Context, node string) error {
	if err := endDetached(ctx, t.dir(node, "cable")); err != nil {
		return err
	}
	if err := t.kill(ctx, node); err != nil {
		return err
	}
	if err := t.unplug(ctx, node); err != nil {
		return err
	}
	if err := unmountBelow(ctx, t.dir(node)); err != nil {
		return err
	}
	leftovers, _ := filepath.Glob("/run/systemd/nspawn/*/" + t.own(node))
	for _, path := range append(leftovers, t.dir(node)) {
		if err := unmountBelow(ctx, path); err != nil {
			return err
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("removing node %s: %w", node, err)
		}
	}
	return nil
}

// mountsBelow lists the mount points at dir and below, in the order of mounting.
func mountsBelow(dir string) []string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close()
	var mounts []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); fields[4] == dir || strings.HasPrefix(fields[4], dir+"/") {
			mounts = append(mounts, fields[4])
		}
	}
	return mounts
}

func unmountBelow(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var last error
	err := waitFor(ctx, "mounts below "+dir+" to be free", func() bool {
		for _, m := range slices.Backward(mountsBelow(dir)) {
			if err := unix.Unmount(m, 0); err != nil {
				last = fmt.Errorf("unmounting %s: %w", m, err)
			}
		}
		return len(mountsBelow(dir)) == 0
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}
