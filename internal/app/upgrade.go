package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Upgrading is what an upgrade would do.
type Upgrading struct {
	Cluster  string           `json:"cluster"`
	Runs     []Running        `json:"runs"`              // what runs now
	Path     []config.Release `json:"path"`              // the releases that the cluster gets, one after the other; empty: it has the wanted one
	Fetched  []Fetching       `json:"fetched,omitempty"` // what each of these runs downloads
	Drained  []string         `json:"drained,omitempty"` // nodes whose pods are moved, in their order
	Snapshot string           `json:"snapshot,omitempty"`
	Lasts    time.Duration    `json:"lasts,omitempty"` // about how long all runs take, in nanoseconds, by the last upgrade; 0: none is recorded that ended well
	Back     string           `json:"back"`            // how the cluster goes back
	First    *Proposal        `json:"first"`           // the first run
}

// Fetching is what a run downloads: what is neither in the store nor downloaded by a run before.
type Fetching struct {
	Items []resource.Stock `json:"items,omitempty"` // programs and images, with their sizes in bytes
	Bytes int64            `json:"bytes"`           // of those whose size servers tell, at most: images may share layers
}

// Running is a program of a cluster, and its version.
type Running struct {
	Program string   `json:"program"`
	Version string   `json:"version"`
	Hosts   []string `json:"hosts"`
}

// PlanUpgrade looks what an upgrade would do, and makes all its checks. Nothing is changed.
func (a *App) PlanUpgrade(ctx context.Context, r Request, o Observer, set map[string]string) (*Upgrading, error) {
	r, err := a.upgrading(r, o, set)
	if err != nil {
		return nil, err
	}
	r.DryRun = true
	w, turns, err := a.beginApply(ctx, r, o)
	if err != nil {
		return nil, err
	}
	path, err := w.path()
	var confs []*v1alpha1.Cluster
	if err == nil {
		confs, err = w.configurations(turns)
	}
	if turns != nil && err == nil {
		w.close()
		w, err = a.begin(ctx, turns[0].Request, o)
	}
	if err != nil {
		return nil, err
	}
	defer w.close()
	s, err := w.living(ctx, "apply")
	if err != nil {
		return nil, err
	}
	u := &Upgrading{Cluster: w.config.Metadata.Name, Runs: s.running(), Path: path, Back: "kubexm upgrade rollback" + w.Which()}
	if u.First, err = s.propose(ctx); err != nil {
		return nil, err
	}
	if s.cluster.Upgrades() && etcd.SnapshotHost(s.cluster) != "" {
		u.Snapshot = etcd.SnapshotFile(s.cluster)
	}
	if len(path) == 0 {
		return u, nil
	}
	for _, h := range s.cluster.Nodes() {
		if config.Minor(s.cluster.Observed.Nodes[h].Version) != config.Minor(path[len(path)-1].Kubernetes) && (len(s.cluster.Only) == 0 || slices.Contains(s.cluster.Only, h)) {
			u.Drained = append(u.Drained, h)
		}
	}
	if u.Fetched, err = s.fetching(ctx, confs); err == nil {
		u.Lasts, err = w.lasts(len(path), len(u.Drained))
	}
	return u, err
}

// path is how the cluster gets from the release that the last run which ended well applied to that of its configuration.
func (w *work) path() ([]config.Release, error) {
	applied, err := w.records.Applied()
	if err != nil || applied == nil || len(applied.Resolved) == 0 {
		return nil, err
	}
	was, err := config.Recorded(applied.Resolved)
	if err == nil {
		was, err = w.finished(applied, was)
	}
	if err != nil {
		return nil, err
	}
	return config.Path(config.ReleaseOf(&was.Spec), config.ReleaseOf(&w.config.Spec)), nil
}

// running is what of the cluster was found to run.
func (s *site) running() (all []Running) {
	add := func(program, version, host string) {
		if version == "" {
			return
		}
		for i := range all {
			if all[i].Program == program && all[i].Version == version {
				all[i].Hosts = append(all[i].Hosts, host)
				return
			}
		}
		all = append(all, Running{program, version, []string{host}})
	}
	is := s.cluster.Observed
	for _, m := range is.Members {
		if m.Version != "" {
			add("etcd", "v"+m.Version, cmp.Or(m.Host, m.Name))
		}
	}
	for _, a := range is.API {
		add("kube-apiserver", a.Version, a.Host)
	}
	for _, h := range s.cluster.Nodes() {
		add("kubelet", is.Nodes[h].Version, h)
	}
	for _, h := range s.cluster.Nodes() {
		add("runtime", is.Nodes[h].Runtime, h)
	}
	return all
}

// Upgrade brings a cluster to other versions, by field of its configuration, which is edited.
func (a *App) Upgrade(ctx context.Context, r Request, o Observer, set map[string]string) (*Result, error) {
	r, err := a.upgrading(r, o, set)
	if err != nil {
		return nil, err
	}
	return a.Apply(ctx, r, o, nil)
}

// upgrading is a request with the edit of an upgrade, which goes forward.
func (a *App) upgrading(r Request, o Observer, set map[string]string) (Request, error) {
	was, _, err := a.released(r, o)
	if err != nil {
		return r, err
	}
	if to := set[kubernetesVersion]; to != "" && config.Minor(to) < config.Minor(was.Kubernetes) {
		err := fmt.Errorf("the cluster has Kubernetes %s, which is newer than %s", was.Kubernetes, to)
		return r, fault.Exit(fault.Advise(err, "to go back to the version before: kubexm upgrade rollback"+a.Which(r)), fault.ExitUsage)
	}
	r.Edit, r.Resume = &config.Edit{Set: set}, false
	return r, nil
}

// Fields of the configuration with versions.
const (
	kubernetesVersion = "spec.kubernetes.version"
	etcdVersion       = "spec.etcd.version"
)

// released is the release that was applied last, and the history that led to it, oldest first.
func (a *App) released(r Request, o Observer) (last config.Release, history []store.Revision, err error) {
	p, err := a.use(r, o).history()
	if err != nil {
		return last, nil, err
	}
	defer p.Close()
	if history, err = p.Store.History(); err != nil {
		return last, nil, err
	}
	if len(history) == 0 {
		return last, nil, p.noCluster(p.name)
	}
	last, err = releaseOf(history[len(history)-1])
	return last, history, err
}

// releaseOf is the release of a configuration that was applied.
func releaseOf(r store.Revision) (config.Release, error) {
	conf, err := config.Recorded(r.Resolved)
	if err != nil {
		return config.Release{}, err
	}
	return config.ReleaseOf(&conf.Spec), nil
}

// RollBack brings a cluster back to the version of Kubernetes that it had before the last upgrade: kubelets first, then API servers. etcd goes back, too, as long
// as one of its members has the old version; else it keeps the new one.
func (a *App) RollBack(ctx context.Context, r Request, o Observer) (*Result, error) {
	now, history, err := a.released(r, o)
	if err != nil {
		return nil, err
	}
	to, err := previous(now, history)
	if err != nil {
		return nil, fault.Exit(err, fault.ExitUsage)
	}
	set := map[string]string{kubernetesVersion: to.Kubernetes}
	if now.Etcd != "" {
		if set[etcdVersion], err = a.etcdBack(ctx, r, o, now.Etcd, to.Etcd); err != nil {
			return nil, err
		}
	}
	r.Edit, r.Resume = &config.Edit{Set: set}, false
	return a.Apply(ctx, r, o, nil)
}

// previous is the release that a cluster had before its last upgrade.
func previous(now config.Release, history []store.Revision) (to config.Release, err error) {
	for _, r := range slices.Backward(history) {
		if len(r.Resolved) == 0 {
			continue
		}
		is, err := releaseOf(r)
		if err != nil {
			return to, err
		}
		if config.Older(is.Kubernetes, now.Kubernetes) == now.Kubernetes || config.Same(is.Kubernetes, now.Kubernetes) {
			continue
		}
		return is, readable(is.Kubernetes, history)
	}
	return to, fault.Advise(errors.New("the cluster had no older version of Kubernetes"), "kubexm config history lists what was applied")
}

// readable refuses a version of Kubernetes that may not read what a newer one which has run meanwhile has written.
func readable(kubernetes string, history []store.Revision) error {
	newest := 0
	for _, r := range history {
		if len(r.Resolved) == 0 {
			continue
		}
		is, err := releaseOf(r)
		if err != nil {
			return err
		}
		newest = max(newest, config.Minor(is.Kubernetes))
	}
	if newest-config.Minor(kubernetes) <= 1 {
		return nil
	}
	err := fmt.Errorf("the cluster cannot go back to Kubernetes %s: version 1.%d has run meanwhile, and what it wrote may be unreadable for it", kubernetes, newest)
	return fault.Exit(fault.Advise(err, "restore the snapshot of etcd from before, in the directory snapshots of the cluster"), fault.ExitUsage)
}

// checkReadable refuses to go back to such a version.
func (w *work) checkReadable() error {
	history, err := w.records.History()
	if err != nil || len(history) == 0 || len(history[len(history)-1].Resolved) == 0 {
		return err
	}
	has, err := releaseOf(history[len(history)-1])
	if err != nil || config.Minor(w.config.Spec.Kubernetes.Version) >= config.Minor(has.Kubernetes) {
		return err
	}
	return readable(w.config.Spec.Kubernetes.Version, history)
}

// etcdBack is the version that etcd has after a rollback.
func (a *App) etcdBack(ctx context.Context, r Request, o Observer, now, before string) (string, error) {
	r.DryRun, r.Edit = true, nil
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return "", err
	}
	defer w.close()
	s, err := w.living(ctx, "apply")
	if err != nil {
		return "", err
	}
	if runs, _ := s.cluster.Runs(); config.Minor(runs.Etcd) > config.Minor(before) {
		return now, nil
	}
	return before, nil
}

// only are the nodes that may get another kubelet in this run.
func (w *work) only() (nodes []string, err error) {
	for _, which := range w.Only {
		key, value, label := strings.Cut(which, "=")
		before := len(nodes)
		for i := range w.config.Spec.Hosts {
			h := &w.config.Spec.Hosts[i]
			if h.Name == which || h.Is(v1alpha1.Role(which)) || label && h.Labels[key] == value {
				nodes = append(nodes, h.Name)
			}
		}
		if len(nodes) == before {
			err := fmt.Errorf("--only %s: no host has this name, role or label", which)
			return nil, fault.Exit(fault.Advise(err, "names, roles and labels are in spec.hosts; kubexm status"+w.Which()+" lists the hosts"), fault.ExitUsage)
		}
	}
	return nodes, nil
}
