package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/preflight"
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
	Lasts    time.Duration    `json:"lasts,omitempty"`  // about how long all runs take, in nanoseconds, by the last upgrade; 0: none is recorded that ended well
	Back     string           `json:"back,omitempty"`   // how the cluster goes back, and
	BackTo   string           `json:"backTo,omitempty"` // to which version of Kubernetes; empty: it cannot
	AtATime  int              `json:"atATime"`          // how many nodes are drained at a time, once the first one is well
	First    *Proposal        `json:"first"`            // the first run; nil: it cannot be planned, as a check says
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

// PlanUpgrade looks what an upgrade would do, and makes all its checks. Nothing is changed. Where a check finds an error, both are returned.
func (a *App) PlanUpgrade(ctx context.Context, r Request, o Observer, set map[string]string) (*Upgrading, error) {
	w, r, turns, err := a.beginLook(ctx, r, o, set)
	if err != nil {
		return nil, err
	}
	defer func() { w.close() }()
	path, err1 := w.path()
	confs, err2 := w.configurations(turns)
	back, err3 := w.wayBack(path)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	if turns != nil {
		r = turns[0].Request
	}
	enter := func() (*site, error) {
		w.close()
		next, err := a.begin(ctx, r, o)
		if err != nil {
			return nil, err
		}
		w = next
		return w.living(ctx, "apply")
	}
	s, err := enter()
	var unfit *preflight.Error
	found := err
	if errors.As(err, &unfit) { // which is told besides what would be done
		r.SkipPreflight = preflight.Names()
		s, err = enter()
	} else {
		found = nil
	}
	if err != nil {
		return nil, cmp.Or(found, err)
	}
	u := &Upgrading{Cluster: w.config.Metadata.Name, Runs: s.running(), Path: path, BackTo: back}
	if back != "" {
		u.Back = "kubexm upgrade rollback" + w.Which()
	}
	if u.First, err = s.propose(ctx); err != nil && found == nil {
		return nil, err
	}
	if err := s.upgradingNodes(ctx, u, confs); err != nil {
		return nil, cmp.Or(found, err)
	}
	return u, found
}

// beginLook begins to look at an upgrade, of which nothing is done.
func (a *App) beginLook(ctx context.Context, r Request, o Observer, set map[string]string) (*work, Request, []turn, error) {
	r, err := a.upgrading(r, o, set)
	if err != nil {
		return nil, r, nil, err
	}
	r.DryRun = true
	w, turns, err := a.beginApply(ctx, r, o)
	return w, r, turns, err
}

// upgradingNodes tells what becomes of nodes, and what all runs need.
func (s *site) upgradingNodes(ctx context.Context, u *Upgrading, confs []*v1alpha1.Cluster) (err error) {
	path := u.Path
	if s.cluster.Upgrades() && etcd.SnapshotHost(s.cluster) != "" {
		u.Snapshot = etcd.SnapshotFile(s.cluster)
	}
	if len(path) == 0 {
		return nil
	}
	for _, h := range s.cluster.Nodes() {
		if config.Minor(s.cluster.Observed.Nodes[h].Version) != config.Minor(path[len(path)-1].Kubernetes) && (len(s.cluster.Only) == 0 || slices.Contains(s.cluster.Only, h)) {
			u.Drained = append(u.Drained, h)
		}
	}
	u.AtATime = s.cluster.AtATime(len(u.Drained))
	if u.Fetched, err = s.fetching(ctx, confs); err == nil {
		u.Lasts, err = s.lasts(len(path), len(u.Drained))
	}
	return err
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

// wayBack is the version of Kubernetes that a cluster goes back to once it has gone a way; empty: it cannot.
func (w *work) wayBack(path []config.Release) (string, error) {
	history, err := w.records.History()
	if err != nil || len(path) == 0 || len(history) == 0 {
		return "", err
	}
	before, err := releaseOf(history[len(history)-1])
	if len(path) > 1 {
		before = path[len(path)-2]
	}
	to := path[len(path)-1].Kubernetes
	if err != nil || config.Same(before.Kubernetes, to) || config.Minor(to)-config.Minor(before.Kubernetes) > 1 || readable(before.Kubernetes, history) != nil {
		return "", err
	}
	return before.Kubernetes, nil
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
	was, history, err := a.released(r, o)
	if err != nil {
		return r, err
	}
	if to := set[kubernetesVersion]; to != "" && !config.Same(to, was.Kubernetes) && config.Older(to, was.Kubernetes) == to {
		err := fmt.Errorf("the cluster has Kubernetes %s, which is newer than %s", was.Kubernetes, to)
		advice := "to go back to the version before: kubexm upgrade rollback" + a.Which(r)
		if config.Minor(to) == config.Minor(was.Kubernetes) {
			advice = "give a newer one: --to; to have the older one all the same, write it into spec.kubernetes.version, and: kubexm apply" + a.Which(r)
		}
		return r, fault.Exit(fault.Advise(err, advice), fault.ExitUsage)
	}
	if set, err = a.along(r, history, set); err != nil {
		return r, err
	}
	r.Edit, r.Resume = &config.Edit{Set: set}, false
	return r, nil
}

// along lets etcd go with another version of Kubernetes where its version is written, but is one that it has had with Kubernetes by default: the way
// back writes those.
func (a *App) along(r Request, history []store.Revision, set map[string]string) (map[string]string, error) {
	_, conf, err := a.Config(r, Observer{})
	if err != nil || set[kubernetesVersion] == "" || conf.Origin.Lines[etcdVersion] == 0 {
		return set, err
	}
	to, is := config.EtcdFor(&conf.Spec, set[kubernetesVersion]), conf.Spec.Etcd.Version
	if to == "" || config.Older(is, to) == to {
		return set, nil
	}
	for _, r := range history {
		if len(r.Resolved) == 0 {
			continue
		}
		had, err := releaseOf(r)
		if err != nil {
			return set, err
		}
		if config.EtcdFor(&conf.Spec, had.Kubernetes) == is {
			set = maps.Clone(set)
			set[etcdVersion] = to
			break
		}
	}
	return set, nil
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
	to, err := previous(history)
	if err != nil {
		return nil, fault.Exit(err, fault.ExitUsage)
	}
	set := map[string]string{kubernetesVersion: to.Kubernetes}
	if now.Etcd != "" {
		_, conf, err := a.Config(r, Observer{})
		if err != nil {
			return nil, err
		}
		etcd, err := a.etcdBack(ctx, r, o, now, to)
		if err != nil {
			return nil, err
		}
		if conf.Origin.Lines[etcdVersion] > 0 || etcd != config.EtcdFor(&conf.Spec, to.Kubernetes) { // else it goes with Kubernetes
			set[etcdVersion] = etcd
		}
	}
	r.Edit, r.Resume, r.backward = &config.Edit{Set: set}, false, true
	return a.Apply(ctx, r, o, nil)
}

// previous is the release that a cluster had before its last upgrade, which was one of Kubernetes; or the one that it goes back to already, in a run that did not end well.
func previous(history []store.Revision) (to config.Release, err error) {
	last := history[len(history)-1]
	now, err := releaseOf(last)
	if err != nil {
		return to, err
	}
	back := false // it had a newer one meanwhile
	for _, r := range slices.Backward(history[:len(history)-1]) {
		if len(r.Resolved) == 0 {
			continue
		}
		is, err1 := releaseOf(r)
		changes, err2 := config.Changes(r.Resolved, last.Resolved)
		if err := errors.Join(err1, err2); err != nil {
			return to, err
		}
		changes = slices.DeleteFunc(changes, func(c config.Change) bool { return !strings.HasSuffix(c.Field, ".version") })
		switch same, older := config.Same(is.Kubernetes, now.Kubernetes), config.Older(is.Kubernetes, now.Kubernetes) == is.Kubernetes; {
		case !same && older:
			return is, readable(is.Kubernetes, history)
		case !same && last.Run.Result != "ok":
			return now, nil
		case !same:
			back = true
		case len(changes) > 0 && !back:
			err := fmt.Errorf("the last upgrade was not one of Kubernetes (%s)", changes[0])
			return to, fault.Advise(err, fmt.Sprintf("to take it back, write %s: %s, and run kubexm apply", changes[0].Field, changes[0].Was))
		}
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
func (a *App) etcdBack(ctx context.Context, r Request, o Observer, now, to config.Release) (string, error) {
	r.DryRun, r.Edit = true, &config.Edit{Set: map[string]string{kubernetesVersion: to.Kubernetes}}
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return "", err
	}
	defer w.close()
	s, err := w.living(ctx, "apply")
	if err != nil {
		return "", err
	}
	if runs, _ := s.cluster.Runs(); config.Minor(runs.Etcd) > config.Minor(to.Etcd) {
		return now.Etcd, nil
	}
	return to.Etcd, nil
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
