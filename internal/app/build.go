package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pipeline"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/diff"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// objectsDir holds the objects of Kubernetes that a build renders, beside the directories of hosts.
const objectsDir = "objects"

// Built is what a build wrote.
type Built struct {
	Cluster string      `json:"cluster"`
	Dir     string      `json:"dir"` // a directory for each host, with files under their paths there; and objects
	Hosts   []BuiltHost `json:"hosts"`
}

// BuiltHost is what a build wrote for a host, or of objects.
type BuiltHost struct {
	Name    string `json:"name"`
	Files   int    `json:"files"`
	Changed int    `json:"changed"` // that were not there, or differed, or are no more
	Assumed bool   `json:"assumed"` // the host was never asked what it is like
}

// rendered are files by host and by absolute path.
type rendered map[string]map[string]step.File

// Build makes all keys and certificates of a cluster, and writes every file that install
// will write to its hosts. No host is asked: what is known of them is what was seen the last
// time; one that was never asked is taken for an ordinary machine.
func (a *App) Build(ctx context.Context, r Request, o Observer) (*Built, error) {
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.checkUnchanged(refused); err != nil {
		return nil, err
	}
	facts, err := w.records.Facts()
	if err != nil {
		return nil, err
	}
	var assumed []string
	for i := range w.config.Spec.Hosts {
		if h := &w.config.Spec.Hosts[i]; facts[h.Name] == nil {
			facts[h.Name] = ordinary(h)
			assumed = append(assumed, h.Name)
		}
	}
	c, err := w.planning(ctx, facts, v1alpha1.Source{Offline: true})
	if err != nil {
		return nil, err
	}
	files, err := render(c)
	if err != nil {
		return nil, err
	}
	if err := c.Certs.Flush(); err != nil {
		return nil, fmt.Errorf("writing the keys of the cluster: %w", err)
	}
	changed, err := w.writeBuilt(c, files)
	if err != nil {
		return nil, err
	}
	if assumed != nil {
		w.notice("never contacted, assumed to be an ordinary machine: %s (kubexm preflight contacts it)", human.Names(assumed, 10))
	}
	b := &Built{Cluster: c.Name, Dir: w.dir}
	for _, name := range append(c.All(), objectsDir) {
		b.Hosts = append(b.Hosts, BuiltHost{name, len(files[name]), changed[name], slices.Contains(assumed, name)})
	}
	return b, nil
}

// ordinary are the facts of a machine that nobody has asked: a host of a supported
// distribution with a kernel of our day.
func ordinary(h *v1alpha1.Host) *runner.Facts {
	f := &runner.Facts{
		Arch: h.Arch, OS: "debian", PackageManager: "apt", Kernel: "6.1", CgroupVersion: 2, Systemd: true, Capabilities: ^uint64(0), Features: map[string]bool{},
		Interfaces: []runner.Interface{{Name: "eth0"}},
	}
	for _, ip := range h.IPs() {
		f.Interfaces[0].Addresses = append(f.Interfaces[0].Addresses, ip+map[bool]string{true: "/64", false: "/24"}[strings.Contains(ip, ":")])
	}
	if f.Arch == "" {
		f.Arch = Archs()[0]
	}
	for _, feature := range []string{runner.FeatureOverlay, runner.FeatureBridgeNF, runner.FeatureNFTables, runner.FeatureIPVS, runner.FeatureVXLAN} {
		f.Features[feature] = true
	}
	return f
}

// render returns all that hosts get in the life of the cluster, from its birth on.
func render(c *cluster.Cluster) (rendered, error) {
	graph, err := planned(c, pipeline.Create)
	if err != nil {
		return nil, err
	}
	all := rendered{}
	add := func(host string, f step.File) error {
		if all[host] == nil {
			all[host] = map[string]step.File{}
		}
		at := path.Clean(f.Path)
		if was, ok := all[host][at]; ok && !bytes.Equal(was.Content, f.Content) {
			return fmt.Errorf("planning: two steps write different contents to %s of host %s", at, host)
		}
		all[host][at] = f
		return nil
	}
	for i := range graph.Nodes {
		n := &graph.Nodes[i]
		if n.Barrier() {
			continue
		}
		var files []step.File
		host, err := n.Host, error(nil)
		switch s := step.Unwrap(n.Step).(type) {
		case step.Writer:
			files, err = s.Writes()
		case step.Apply:
			host, files = objectsDir, []step.File{{Path: "/" + strings.ReplaceAll(s.What, " ", "-") + ".yaml", Content: s.Objects, Mode: 0o600}}
		}
		for _, f := range files {
			err = errors.Join(err, add(host, f))
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// differ lists how the directory of a host differs from what was rendered for it.
func differ(dir string, files map[string]step.File) (differences []string, err error) {
	found := map[string]bool{}
	built := os.DirFS(dir)
	err = fs.WalkDir(built, ".", func(rel string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		at := "/" + rel
		f, ok := files[at]
		if !ok {
			differences = append(differences, at+" is no longer part of it")
			return nil
		}
		found[at] = true
		is, err := fs.ReadFile(built, rel)
		if err != nil {
			return err
		}
		if bytes.Equal(is, f.Content) {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		what := at + " differs"
		if info.Mode()&0o077 != 0 && f.Mode&0o077 != 0 { // neither holds a secret
			what += ":\n" + strings.TrimSuffix(diff.Unified(f.Path, string(is), string(f.Content)), "\n")
		}
		differences = append(differences, what)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for at := range files {
		if !found[at] {
			differences = append(differences, at+" is missing")
		}
	}
	slices.Sort(differences)
	return differences, err
}

// writeBuilt brings the directories of hosts to what was rendered, and tells how many files of each changed.
func (w *work) writeBuilt(c *cluster.Cluster, files rendered) (map[string]int, error) {
	changed := map[string]int{}
	was, err := w.records.Built()
	if err != nil {
		return nil, err
	}
	for _, dir := range stale(c, was) { // what was built for a host that is none any more: its keys go
		if err := os.RemoveAll(filepath.Join(w.dir, dir)); err != nil {
			return nil, fmt.Errorf("removing what was built for %s: %w", dir, err)
		}
	}
	if err := w.records.KeepBuilt(append(c.All(), objectsDir)); err != nil {
		return nil, err
	}
	var writes errgroup.Group
	var mu sync.Mutex // guards changed
	writes.SetLimit(writing)
	for _, host := range slices.Sorted(maps.Keys(files)) {
		writes.Go(func() error {
			dir := filepath.Join(w.dir, host)
			differences, err := differ(dir, files[host])
			if err == nil && differences != nil {
				err = writeTree(dir, files[host])
			}
			if err != nil {
				return durable.Advise(fmt.Errorf("writing what is built for %s: %w", host, err))
			}
			mu.Lock()
			defer mu.Unlock()
			changed[host] = len(differences)
			return nil
		})
	}
	if err := writes.Wait(); err != nil {
		return nil, err
	}
	return changed, nil
}

// writing is for how many hosts files are written at a time.
const writing = 16

// stale are those of the directories that belong to nobody now.
func stale(c *cluster.Cluster, dirs []string) []string {
	return slices.DeleteFunc(dirs, func(d string) bool { return d == objectsDir || c.Host(d) != nil || filepath.Base(d) != d })
}

// writeTree replaces a directory. Cut off in the middle, it leaves one that install refuses.
func writeTree(dir string, files map[string]step.File) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for at, f := range files {
		file := filepath.Join(dir, filepath.FromSlash(at))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, f.Content, f.Mode.Perm()|0o200); err != nil {
			return err
		}
	}
	return nil
}

// checkBuilt refuses to install anything but what was built.
func (w *work) checkBuilt(c *cluster.Cluster, files rendered) error {
	was, err := w.records.Built()
	if err != nil {
		return err
	}
	var wrong []string
	for _, dir := range stale(c, was) {
		wrong = append(wrong, dir+": was built, but is no longer a host of the configuration")
	}
	for _, host := range slices.Sorted(maps.Keys(files)) {
		differences, err := differ(filepath.Join(w.dir, host), files[host])
		if err != nil {
			return fmt.Errorf("reading what was built for %s: %w", host, err)
		}
		for _, d := range differences {
			wrong = append(wrong, host+": "+d)
		}
	}
	if wrong == nil {
		return nil
	}
	const most = 10
	if n := len(wrong) - most; n > 0 {
		wrong = append(wrong[:most], fmt.Sprintf("and %d more", n))
	}
	err = fmt.Errorf("what was built in %s does not match this configuration and these hosts:\n  %s", w.dir, joinLines(wrong))
	return fault.Exit(fault.Advise(err, "nothing was touched. Do not edit what was built: change the configuration, and build again, now that the hosts are known: kubexm build cluster"+w.Which()), fault.ExitUsage)
}
