package testbed

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hierarchies are the mount points of this machine's cgroups: one per
// controller with cgroup v1, often beside a unified one without controllers;
// one in all with v2.
type hierarchies struct {
	dirs []string
	v2   bool // all controllers are in the unified one
}

func cgroups() (hierarchies, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return hierarchies{}, fmt.Errorf("finding the cgroup hierarchies: %w", err)
	}
	defer f.Close()
	return parseCgroups(f)
}

// parseCgroups reads the form of /proc/self/mountinfo.
func parseCgroups(mountinfo io.Reader) (hierarchies, error) {
	var h hierarchies
	v1 := false
	for s := bufio.NewScanner(mountinfo); s.Scan(); {
		fields, rest, _ := strings.Cut(s.Text(), " - ")
		mount, kind := strings.Fields(fields)[4], strings.Fields(rest)[0]
		if strings.HasPrefix(mount, "/sys/fs/cgroup") && (kind == "cgroup" || kind == "cgroup2") {
			h.dirs = append(h.dirs, mount)
			v1 = v1 || kind == "cgroup"
		}
	}
	h.v2 = !v1
	if len(h.dirs) == 0 {
		return h, fmt.Errorf("finding the cgroup hierarchies: nothing is mounted below /sys/fs/cgroup")
	}
	return h, nil
}

// of returns the cgroup of that name in each hierarchy.
func (h hierarchies) of(name string) []string {
	dirs := make([]string, len(h.dirs))
	for i, d := range h.dirs {
		dirs[i] = filepath.Join(d, name)
	}
	return dirs
}

// create makes the cgroup of that name in each hierarchy and returns the directories.
func (h hierarchies) create(name string) ([]string, error) {
	if h.v2 {
		if err := delegate(h.dirs[0]); err != nil {
			return nil, err
		}
	}
	dirs := h.of(name)
	for i, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("making a cgroup: %w", err)
		}
		if err := fillCpuset(h.dirs[i], dir); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

// fillCpuset gives a v1 cpuset its parent's processors, without which no
// process can enter it. It does nothing in other hierarchies.
func fillCpuset(parent, dir string) error {
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(parent, f))
		if err != nil {
			return nil
		}
		if err := os.WriteFile(filepath.Join(dir, f), b, 0o644); err != nil {
			return fmt.Errorf("filling a cpuset: %w", err)
		}
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.clone_children"), []byte("1"), 0o644)
}

// delegate hands all controllers of a v2 root on to its children.
func delegate(root string) error {
	b, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("reading the cgroup controllers: %w", err)
	}
	for _, c := range strings.Fields(string(b)) {
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+"+c), 0o644); err != nil {
			return fmt.Errorf("delegating cgroup controller %s: %w", c, err)
		}
	}
	return nil
}

// processes lists the processes of a node: what is in its cgroups, and what
// was started to make or boot it.
func (t *Testbed) processes(node string) []int {
	h, err := cgroups()
	if err != nil {
		return nil
	}
	var pids []int
	for _, dir := range h.of(t.own(node)) {
		walkDirs(dir, func(d string) {
			b, _ := os.ReadFile(filepath.Join(d, "cgroup.procs"))
			for _, f := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
		})
	}
	pids = append(pids, processesWith(func(arg string) bool {
		return arg == "--machine="+t.own(node) || strings.HasPrefix(arg, t.dir(node)+"/")
	})...)
	slices.Sort(pids)
	return slices.Compact(pids)
}

// processesWith lists the processes that have such an argument.
func processesWith(such func(arg string) bool) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var pids []int
	for _, f := range files {
		b, _ := os.ReadFile(f)
		if !slices.ContainsFunc(strings.Split(string(b), "\x00"), such) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill ends all processes of a node and removes its cgroups.
func (t *Testbed) kill(ctx context.Context, node string) error {
	h, err := cgroups()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	dirs := h.of(t.own(node))
	return waitFor(ctx, "the processes of "+node+" to end", func() bool {
		alive := t.processes(node)
		for _, pid := range alive {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		left := len(alive) > 0
		for _, dir := range dirs {
			var all []string
			walkDirs(dir, func(d string) {
				all = append(all, d)
				os.WriteFile(filepath.Join(d, "freezer.state"), []byte("THAWED"), 0) // a frozen process does not die
			})
			for _, d := range slices.Backward(all) {
				if err := os.Remove(d); err != nil && !gone(err) {
					left = true
				}
			}
		}
		return !left
	})
}

// walkDirs calls f for dir and all directories below, parents first.
func walkDirs(dir string, f func(string)) {
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			f(path)
		}
		return nil
	})
}

// grouped lists the nodes that have cgroups.
func (t *Testbed) grouped() []string {
	h, err := cgroups()
	if err != nil {
		return nil
	}
	var nodes []string
	for _, d := range h.dirs {
		paths, _ := filepath.Glob(filepath.Join(d, t.own("node*")))
		for _, p := range paths {
			nodes = append(nodes, strings.TrimPrefix(filepath.Base(p), t.Name+"-"))
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
