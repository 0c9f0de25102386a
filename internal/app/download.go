package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/pipeline"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/signature"
	"github.com/kubexm/kubexm/pkg/task"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Archs are the architectures that there is something for.
func Archs() []string { return []string{"amd64", "arm64"} }

// Selection says for what to download.
type Selection struct {
	Archs      []string // of hosts whose configuration does not say; empty: amd64
	Kubernetes []string // versions, of any cluster; empty: the one that is named
	Systems    []string // whose packages are wanted, see distro.Names
	Refresh    bool     // ask for newer packages, where the lock has all that are wanted
}

// Download is what clusters need of the store. No host is asked about it.
type Download struct {
	Cluster  string           `json:"cluster"`  // kubernetes, where it is for any
	Versions []string         `json:"versions"` // of Kubernetes
	Items    []resource.Stock `json:"items"`

	app      *App
	clusters []*cluster.Cluster
	packages []resource.PackageSet
	needs    []resource.Item
	store    *resource.Store
}

// NewDownload finds out what is needed, what of it is there, and where the rest comes
// from. Servers are asked for sizes, and distributions for what packages depend on; nothing is put into the store but charts and manifests, which tell what else is needed. That the configuration is for
// use without a network does not hold here: it is this that makes it work.
func (a *App) NewDownload(ctx context.Context, r Request, o Observer, sel Selection) (*Download, error) {
	u := a.use(r, o)
	confs, err := u.selected(&sel)
	if err != nil {
		return nil, err
	}
	return u.download(ctx, confs, sel)
}

// download finds out what configurations need.
func (u *use) download(ctx context.Context, confs []*v1alpha1.Cluster, sel Selection) (*Download, error) {
	if err := sel.checkSystems(); err != nil {
		return nil, err
	}
	d := &Download{app: u.app, Cluster: confs[0].Metadata.Name}
	src, err := u.resolveSource(ctx, confs[0])
	if err != nil {
		return nil, err
	}
	src.Offline = false
	if d.store, err = openStore(u.app.Workdir, src); err != nil {
		return nil, err
	}
	for _, conf := range confs {
		d.Versions = append(d.Versions, conf.Spec.Kubernetes.Version)
		all, err := u.onArchs(ctx, conf, d.store, sel.Archs)
		if err != nil {
			return nil, err
		}
		d.clusters = append(d.clusters, all...)
	}
	slices.Sort(d.Versions)
	d.Versions = slices.Compact(d.Versions)
	if d.needs, err = checked(cluster.AllNeeds(d.clusters...), d.clusters); err != nil { // a site without a network has nowhere to get more from
		return nil, err
	}
	if d.packages, err = u.packageSets(ctx, d.store, sel, d.clusters); err != nil {
		return nil, err
	}
	if d.Items, err = d.store.Look(ctx, d.needs, true); err != nil {
		return nil, err
	}
	for _, set := range d.packages {
		d.needs = append(d.needs, set.Item())
		d.Items = append(d.Items, d.store.LookPackages(set))
	}
	return d, nil
}

func needed(clusters ...*cluster.Cluster) ([]resource.Item, error) {
	return checked(cluster.Needs(clusters...), clusters)
}

// checked returns what clusters need, where that is known.
func checked(items []resource.Item, clusters []*cluster.Cluster) ([]resource.Item, error) {
	for _, c := range clusters {
		if err := c.Err(); err != nil {
			return nil, fmt.Errorf("finding out what cluster %s needs: %w", c.Name, err)
		}
	}
	return items, nil
}

// openStore opens the store that all clusters of a work directory share.
func openStore(workdir string, src v1alpha1.Source) (*resource.Store, error) {
	access := map[string]source.Access{}
	for key, a := range src.Access {
		access[key] = source.Access{Username: a.Username, Password: a.Password, CAFile: a.CAFile, Proxy: a.Proxy}
	}
	return resource.Open(filepath.Join(workdir, "packages"), source.Config{Zone: src.Zone, Mirrors: src.Mirrors, Access: access, Insecure: src.Insecure, Signed: src.RequireSignatures, Offline: src.Offline})
}

// selected returns the configurations to download for.
func (u *use) selected(sel *Selection) ([]*v1alpha1.Cluster, error) {
	for _, a := range sel.Archs {
		if !slices.Contains(Archs(), a) {
			return nil, fault.Exit(fault.Advise(fmt.Errorf("unknown architecture %q", a), "give --arch "+strings.Join(Archs(), " or --arch ")), fault.ExitUsage)
		}
	}
	if len(sel.Kubernetes) == 0 {
		_, conf, err := u.read()
		if err != nil {
			return nil, err
		}
		for _, a := range sel.Archs {
			if !slices.ContainsFunc(conf.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Arch == "" || h.Arch == a }) {
				u.notice("nothing to download for %s: the configuration has another architecture for every host (spec.hosts[].arch)", a)
			}
		}
		return []*v1alpha1.Cluster{conf}, nil
	}
	var all []*v1alpha1.Cluster
	for _, v := range sel.Kubernetes {
		for _, kind := range kinds(v) {
			conf, _, err := config.Parse("", []byte(anyCluster+kind))
			if wrong, ok := errors.AsType[config.Errors](err); ok { // of the version: the rest is ours
				err = fault.Exit(fault.Advise(fmt.Errorf("--k8s %s: %s", v, wrong[0].Msg), "give --k8s versions like "+config.DefaultKubernetes()), fault.ExitUsage)
			}
			if err != nil {
				return nil, err
			}
			all = append(all, conf)
		}
	}
	if len(sel.Archs) == 0 {
		sel.Archs = Archs()[:1]
		u.notice("for amd64 only: give --arch for others")
	}
	return all, nil
}

// anyCluster, of each of kinds, needs all that any cluster of a version may need,
// in the versions that configurations have by default; and, where these name a system, its packages.
const anyCluster = `apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: kubernetes}
spec:
  hosts:
  - {name: node1, address: 192.0.2.1, roles: [master, etcd]}
  - {name: node2, address: 192.0.2.2, roles: [master, etcd]}
  - {name: node3, address: 192.0.2.3, roles: [master, etcd]}
  - {name: node4, address: 192.0.2.4, roles: [worker, registry]}
  - {name: node5, address: 192.0.2.5, roles: [loadbalancer]}
  system: {ntpServers: [node1], timezone: UTC}
`

// kinds are the plugins that clusters of a version may have, each with others.
func kinds(version string) (all []string) {
	kind := func(who, etc, balancer string) {
		for _, n := range plugin.Networks() {
			all = append(all, fmt.Sprintf("  kubernetes: {version: %q, type: %s%s}\n  etcd: {type: %[2]s}\n  loadBalancer: {mode: %[4]s}\n  network: {plugin: %[5]s}\n", version, who, etc, balancer, n.Name))
		}
	}
	for _, p := range plugin.Proxies() {
		kind(v1alpha1.TypeKubeadm, "", "internal, internal: {type: "+p.Name+"}")
		kind(v1alpha1.TypeKubexm, "", "internal, internal: {type: "+p.Name+"}")
	}
	for _, v := range plugin.VIPs() {
		kind(v1alpha1.TypeKubexm, ", proxyMode: ipvs", v.Mode+", vip: 192.0.2.100")
	}
	return all
}

// onArchs plans a cluster for each architecture that hosts may have whose own is not
// configured.
func (u *use) onArchs(ctx context.Context, conf *v1alpha1.Cluster, store *resource.Store, archs []string) ([]*cluster.Cluster, error) {
	var open []string
	for i := range conf.Spec.Hosts {
		if h := &conf.Spec.Hosts[i]; h.Arch == "" {
			open = append(open, h.Name)
		}
	}
	switch {
	case len(open) == 0:
		archs = Archs()[:1] // no host asks for it
	case len(archs) == 0:
		archs = Archs()[:1]
		u.notice("the architecture of %s is neither configured (spec.hosts[].arch) nor given with --arch: assuming amd64", human.Names(open, 10))
	}
	var all []*cluster.Cluster
	for _, arch := range archs {
		facts := map[string]*runner.Facts{}
		for _, h := range open {
			facts[h] = &runner.Facts{Arch: arch}
		}
		c := cluster.New(conf, filepath.Join(u.app.Workdir, conf.Metadata.Name), store, facts)
		fetchAddons(ctx, c)
		all = append(all, c)
	}
	return all, nil
}

// Bundle is where to put what was downloaded, for machines without a network.
type Bundle struct {
	File    string // empty: no bundle; may be BundleDefault
	Limit   int64  // bytes of a volume; 0: one file
	Program string // version of this program
	SignKey string // file of the key to sign it with; empty: it is not signed
	SBOM    string // file for a list of what was downloaded, also without a bundle; empty: none
}

// BundleDefault is the name of a bundle that is given none, with CLUSTER and VERSION to be filled in.
const BundleDefault = "kubexm-dist/CLUSTER-VERSION.tar.zst"

// Run fetches what is missing, and writes a bundle where one is wanted.
func (d *Download) Run(b Bundle) func(context.Context, Request, Observer) (*Result, error) {
	return func(ctx context.Context, r Request, o Observer) (*Result, error) {
		res := &Result{Cluster: d.Cluster}
		if b.SignKey != "" { // first: it can be wrong
			key, err := signature.Open(b.SignKey)
			if err != nil {
				return nil, fault.Exit(err, fault.ExitUsage)
			}
			res.Signer = key.Fingerprint()
			key.Close()
		}
		then := []plan.Part{task.FetchPackages(d.store, d.packages)}
		if b.File == BundleDefault {
			b.File = strings.NewReplacer("CLUSTER", d.Cluster, "VERSION", strings.Join(d.Versions, "-")).Replace(BundleDefault)
		}
		what := resource.Bundle{Path: b.File, Limit: b.Limit, Cluster: d.Cluster, Program: b.Program, SignKey: b.SignKey, Items: d.needs}
		if b.File != "" {
			then = append(then, task.Pack(d.store, what, func(files []resource.Volume) { res.Bundle = files }))
		}
		err := d.app.use(r, o).runHere(ctx, pipeline.Download(d.clusters, then...), res)
		if err == nil && b.SBOM != "" {
			res.SBOM, err = b.SBOM, d.store.WriteSBOM(ctx, b.SBOM, what)
		}
		return res, err
	}
}

// Import takes bundles into the store: files, or any volumes of each. With keys, a file of
// public keys, only those that are signed with one of them.
func (a *App) Import(ctx context.Context, r Request, o Observer, files []string, keys string) (*Result, error) {
	var trusted []string
	if keys != "" {
		var err error
		if trusted, err = signature.PublicKeys(keys, resource.SignatureSpace); err != nil {
			return nil, fault.Exit(err, fault.ExitUsage)
		}
	}
	store, err := openStore(a.Workdir, v1alpha1.Source{Offline: true})
	if err != nil {
		return nil, err
	}
	res := &Result{}
	var all []plan.Part
	seen := map[string]bool{}
	for _, f := range files {
		if base := resource.BundleName(f); !seen[base] {
			seen[base] = true
			all = append(all, task.Import(store, f, trusted, func(i resource.Imported) {
				res.Cluster = i.Cluster
				res.Imported = append(res.Imported, i)
			}))
		}
	}
	return res, a.use(r, o).runHere(ctx, pipeline.Import(all...), res)
}

// runHere runs a pipeline that only concerns the control machine. It is no run of a
// cluster, and not recorded.
func (u *use) runHere(ctx context.Context, p plan.Pipeline, res *Result) error {
	here := runner.New(plan.Control, connector.Local())
	return u.runOn(ctx, p, res, func(string) (*runner.Runner, error) { return here, nil })
}

// runOn runs a pipeline that changes nothing of a cluster, and is not recorded.
func (u *use) runOn(ctx context.Context, p plan.Pipeline, res *Result, hosts func(string) (*runner.Runner, error)) error {
	graph, err := plan.New(p)
	if err != nil {
		return fmt.Errorf("planning: %w", err)
	}
	if u.Begin != nil {
		u.Begin(res.Cluster, graph)
	}
	e := &engine.Engine{Hosts: hosts, Sink: u.Event, Stop: u.Stop, DryRun: u.DryRun, Limits: engine.Limits{PerHost: u.Parallel, Process: u.app.Steps}}
	start := time.Now()
	res.Summary, err = e.Run(ctx, graph)
	res.Elapsed = time.Since(start)
	if res.Summary.Interrupted || ctx.Err() != nil {
		err = fault.Exit(errors.Join(ErrStopped, err), fault.ExitInterrupted)
	}
	return err
}

// Verify reads the whole store and compares it with its lock.
func (a *App) Verify(ctx context.Context) (resource.Verified, error) {
	store, err := openStore(a.Workdir, v1alpha1.Source{Offline: true})
	if err != nil {
		return resource.Verified{}, err
	}
	return store.Verify(ctx)
}

// Prune removes from the store what no cluster needs: the one that is named, else none
// of those that are described in conf or were made in the work directory. Of hosts whose
// architecture is not known every one is kept. With DryRun it only says what would go.
func (a *App) Prune(ctx context.Context, r Request, o Observer, sel Selection) ([]resource.Pruned, error) {
	if err := sel.checkSystems(); err != nil {
		return nil, err
	}
	archs := sel.Archs
	store, err := openStore(a.Workdir, v1alpha1.Source{Offline: true})
	if err != nil {
		return nil, err
	}
	u := a.use(r, o)
	described, err := u.described()
	if err != nil {
		return nil, err
	}
	if len(archs) == 0 {
		archs = Archs()
	}
	var all []*cluster.Cluster
	for _, d := range described {
		conf, err := d.conf, d.err
		if err == nil {
			conf.Spec.Source.Offline = true
			var some []*cluster.Cluster
			some, err = u.onArchs(ctx, conf, store, archs)
			all = append(all, some...)
		}
		if err != nil {
			return nil, fault.Advise(fmt.Errorf("finding out what the cluster of %s needs: %w", d.file, err), "fix that configuration, or name the only cluster to keep with --name")
		}
	}
	made, err := filesBelow(a.Workdir, "lock")
	for _, l := range made {
		if dir := filepath.Dir(l); locked(dir) && !r.DryRun {
			return nil, fault.Advise(fmt.Errorf("another kubexm is at work on cluster %s", filepath.Base(dir)), "wait until it has ended")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("looking for clusters: %w", err)
	}
	keep, err := checked(cluster.AllNeeds(all...), all)
	if err != nil {
		return nil, err
	}
	packages, err := keptPackages(store, sel)
	if err != nil {
		return nil, err
	}
	return store.Prune(ctx, append(keep, packages...), r.DryRun)
}

// description is a configuration that was read, or why it was not.
type description struct {
	file string
	conf *v1alpha1.Cluster
	err  error
}

// described are the configurations of the cluster that is named, else of all clusters: those in conf, and those that
// were made in the work directory.
func (u *use) described() (all []description, err error) {
	if u.Name != "" || u.File != "" {
		file, conf, err := u.app.Config(Request{Name: u.Name, File: u.File}, Observer{})
		return []description{{file, conf, err}}, nil
	}
	files, err1 := filesBelow("conf", "cluster.yaml")
	made, err2 := u.app.Clusters()
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("looking for clusters: %w", err)
	}
	for _, f := range files {
		conf, _, err := config.Load(f)
		all = append(all, description{f, conf, err})
	}
	for _, name := range made {
		is, err := u.app.applied(name)
		if is == nil && err == nil {
			continue
		}
		d := description{file: filepath.Join(u.app.Workdir, name), err: err}
		if err == nil {
			text := is.Given
			if len(text) == 0 { // lost by an older version: secrets do not count here
				text = is.Resolved
			}
			d.conf, _, d.err = config.Parse("configuration of "+is.Run.ID, text)
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		return nil, fault.Exit(fault.Advise(errors.New("there is no cluster here or in "+u.app.Workdir+": everything in the store would be removed"), "name the cluster to keep with --name or -f"), fault.ExitUsage)
	}
	return all, nil
}
