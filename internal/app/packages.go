package app

import (
	"context"
	"errors"
	"slices"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/distro"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/task"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// here runs commands on this machine.
func (a *App) here() *runner.Runner {
	if a.Here != nil {
		return runner.New(plan.Control, a.Here)
	}
	return runner.New(plan.Control, connector.Local())
}

// packageSets finds out which packages hosts would be asked to have if each of the selected systems
// were theirs, for each of their architectures.
func (u *use) packageSets(ctx context.Context, store *resource.Store, sel Selection, clusters []*cluster.Cluster) ([]resource.PackageSet, error) {
	var sets []resource.PackageSet
	for _, name := range sel.Systems {
		sys, err := distro.Find(name)
		if err != nil {
			return nil, fault.Exit(err, fault.ExitUsage)
		}
		names := map[string][]string{} // by architecture
		for _, c := range clusters {
			askedFor(c, sys, names)
		}
		for _, arch := range Archs() {
			if len(names[arch]) == 0 {
				continue
			}
			u.notice("looking for the packages of %s %s, and what they depend on", name, arch)
			set, err := store.ResolvePackages(ctx, u.app.here(), name, arch, names[arch], sel.Refresh)
			if err != nil {
				return nil, err
			}
			sets = append(sets, set)
		}
	}
	return sets, nil
}

// askedFor adds, by architecture, the packages that the hosts of a cluster are asked to have where they run a system.
func askedFor(c *cluster.Cluster, sys distro.System, names map[string][]string) {
	facts := map[string]*runner.Facts{}
	for _, h := range c.All() {
		facts[h] = &runner.Facts{Arch: c.Arch(h), OS: sys.ID, OSLike: sys.Like, OSVersion: sys.Version, PackageManager: sys.Manager}
	}
	conf := &v1alpha1.Cluster{Spec: *c.Spec}
	conf.Metadata.Name = c.Name
	like := cluster.New(conf, c.Dir, c.Store, facts)
	for _, h := range like.All() {
		for _, s := range task.Packages(like, h) {
			if p, ok := step.Unwrap(s).(step.Packages); ok {
				arch := like.Arch(h)
				names[arch] = append(names[arch], p.Names...)
			}
		}
	}
	for arch := range names {
		slices.Sort(names[arch])
		names[arch] = slices.Compact(names[arch])
	}
}

// keptPackages are the packages that stay when the store is pruned: of the selected systems, or all that the lock
// has. Which of them machines have is not known.
func keptPackages(store *resource.Store, sel Selection) ([]resource.Item, error) {
	sets, err := store.PackageSets()
	var keep []resource.Item
	for _, set := range sets {
		if len(sel.Systems) == 0 || slices.Contains(sel.Systems, set.System) {
			keep = append(keep, set.Item())
		}
	}
	return keep, err
}

// checkSystems refuses systems that are not known.
func (sel Selection) checkSystems() error {
	var errs []error
	for _, name := range sel.Systems {
		_, err := distro.Find(name)
		errs = append(errs, err)
	}
	return fault.Exit(errors.Join(errs...), fault.ExitUsage)
}
