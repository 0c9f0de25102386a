package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
)

// store is a directory that the cluster fills, and what must be free there.
type store struct {
	path        string
	mib, inodes int
}

// What is needed of a file system besides the limits of the configuration, in MiB.
const (
	binDirMiB     = 1000 // the programs, and those of the next version beside them
	kubeletDirMiB = 500  // secrets, projected volumes; small emptyDirs
)

// stores are the directories that a host's roles fill.
func stores(c *cluster.Cluster, h *v1alpha1.Host) []store {
	p := c.Spec.Preflight
	var all []store
	if c.IsNode(h.Name) || h.Is(v1alpha1.RoleEtcd) || h.Is(v1alpha1.RoleRegistry) {
		all = append(all, store{path: runner.BinDir, mib: binDirMiB})
	}
	if c.IsNode(h.Name) {
		all = append(all, store{c.DataRoot(), p.MinNodeDiskMiB, p.MinNodeInodes}, store{path: runner.KubeletDir, mib: kubeletDirMiB})
	}
	if h.Is(v1alpha1.RoleEtcd) {
		all = append(all, store{path: c.Spec.Etcd.DataDir, mib: p.MinEtcdDiskMiB})
	}
	if h.Is(v1alpha1.RoleRegistry) {
		all = append(all, store{path: c.Spec.Registry.DataDir, mib: p.MinRegistryDiskMiB})
	}
	return all
}

// room compares what the host's stores need with what is free where they are.
// Stores on one file system share it. A host of the cluster has most of it already, unless an upgrade begins: that brings other programs and images beside them.
func room(c *cluster.Cluster, h *v1alpha1.Host, f *runner.Facts, unit string, need func(store) int, free func(runner.Disk) (n int, known bool)) Finding {
	var mounts []string
	have, want, paths := map[string]int{}, map[string]int{}, map[string][]string{}
	for _, s := range stores(c, h) {
		i := slices.IndexFunc(f.Disks, func(d runner.Disk) bool { return d.Path == s.path })
		if i < 0 || need(s) == 0 {
			continue
		}
		n, known := free(f.Disks[i])
		if !known {
			continue
		}
		at := f.Disks[i].Mount
		if paths[at] == nil {
			mounts = append(mounts, at)
		}
		have[at], want[at], paths[at] = n, want[at]+need(s), append(paths[at], s.path)
	}
	var found, needed []string
	for _, at := range mounts {
		if have[at] < want[at] {
			found = append(found, fmt.Sprintf("%d %s free in %s", have[at], unit, at))
			needed = append(needed, fmt.Sprintf("at least %d %s for %s", want[at], unit, strings.Join(paths[at], ", ")))
		}
	}
	if found == nil {
		return Finding{}
	}
	short := Finding{
		Found: strings.Join(found, "; "), Needed: strings.Join(needed, "; "),
		Fix: "make room, mount a larger file system there, or lower the limits in spec.preflight",
	}
	_, begun := c.Runs()
	if begins := c.Upgrades() && !begun && !c.GoesBack(); c.IsTouched(h.Name) && !begins && !c.ChangesRuntime(h.Name) {
		return warning(short)
	}
	return short
}
