package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/backup"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/pipeline"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Where a backup is unpacked in a cluster's directory until the cluster is restored, and what is noted of that.
const (
	restoreDir  = "restore"
	restoreNote = "restore.json"
)

// restoration is one that has begun.
type restoration struct {
	cluster.Restore
	Taken   time.Time // when the backup was
	InPlace bool      // the machines are those that have the cluster
	Data    bool      // etcd has the data, in place
}

// Restoring is what a restore is about to do, for whoever is asked.
type Restoring struct {
	Cluster string    `json:"cluster"`
	Taken   time.Time `json:"taken"`
	Hosts   []string  `json:"hosts"`
}

// Restore makes a cluster again that a backup is of: on the machines that it had, whose etcd gets the data of then, or on others, as the configuration says, where it is
// created with the keys and the data of the backup. It can be repeated until it has ended well. MayRestore is asked before a cluster loses what has changed since.
func (a *App) Restore(ctx context.Context, r Request, o Observer, source string, keys []backup.Key) (*Result, error) {
	m, err := a.manifest(ctx, r, o, source, keys)
	if err != nil {
		return nil, err
	}
	if r.Name == "" && r.File == "" {
		r.Name = m.Cluster
	}
	if err := a.restoredConfig(ctx, r, o, source, keys, m); err != nil {
		return nil, err
	}
	rest, err := a.restoreData(ctx, r, o, source, keys, m)
	if err != nil || r.DryRun {
		return nil, err
	}
	r.restore = &rest.Restore
	res, err := a.create(ctx, r, o, false)
	if err != nil {
		return res, fault.AdviseMore(err, "then run the same command again")
	}
	dir := filepath.Join(a.Workdir, m.Cluster)
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, restoreDir)), os.Remove(filepath.Join(dir, restoreNote))); err != nil {
		return res, fmt.Errorf("removing what a restore needs: %w", err)
	}
	if rest.InPlace {
		a.use(r, o).notice("the data that etcd had before is kept on its members, in before-%s beside the data of now; remove it once it is not needed", rest.ID)
	}
	return res, nil
}

// manifest reads what a backup is of.
func (a *App) manifest(ctx context.Context, r Request, o Observer, source string, keys []backup.Key) (m *backup.Manifest, err error) {
	err = a.readBackup(ctx, r, o, source, func(f io.Reader) error {
		m, err = backup.ReadManifest(f, keys)
		return err
	})
	return m, err
}

// readBackup reads a file, or a backup of that name in a place of the configuration; "latest": the newest one.
func (a *App) readBackup(ctx context.Context, r Request, o Observer, source string, read func(io.Reader) error) error {
	f, err := a.openBackup(ctx, r, o, source)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := read(f); err != nil {
		err = fmt.Errorf("reading the backup %s: %w", source, err)
		if errors.Is(err, backup.ErrRecipient) {
			err = fault.Advise(err, "give the file of the key that belongs to one of spec.backup.recipients of then: --identity FILE")
		}
		return fault.Exit(err, fault.ExitUsage)
	}
	return nil
}

func (a *App) openBackup(ctx context.Context, r Request, o Observer, source string) (io.ReadCloser, error) {
	f, err := os.Open(source)
	if !errors.Is(err, fs.ErrNotExist) || filepath.Base(source) != source {
		if err != nil {
			err = fault.Exit(err, fault.ExitUsage)
		}
		return f, err
	}
	s, err := a.open(ctx, r, o)
	if err != nil {
		return nil, fault.Exit(fault.Advise(fmt.Errorf("there is no file %s, and no configuration that says where backups are: %w", source, err), "give the path of the backup"), fault.ExitUsage)
	}
	places, err := s.places(nil)
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		all, wrong := p.List(ctx, s.config.Metadata.Name)
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("listing backups in %s: %w", p, wrong))
			continue
		}
		for _, o := range slices.Backward(all) {
			if o.Name == source || source == "latest" {
				return p.Open(ctx, o.Name)
			}
		}
	}
	if err == nil {
		err = fmt.Errorf("there is no file %s, and no backup of that name in %d places of spec.backup.targets", source, len(places))
	}
	return nil, fault.Exit(fault.Advise(err, "list them: kubexm backup list"+s.Which()), fault.ExitUsage)
}

// restoredConfig writes the configuration of the backup where there is none for the cluster.
func (a *App) restoredConfig(ctx context.Context, r Request, o Observer, source string, keys []backup.Key, m *backup.Manifest) error {
	u := a.use(r, o)
	d, err := u.document()
	if err != nil {
		return err
	}
	if _, err := os.Stat(d.file); d.given != nil || !errors.Is(err, fs.ErrNotExist) || r.File != "" {
		return nil
	}
	err = a.readBackup(ctx, r, o, source, func(f io.Reader) error {
		_, err := backup.Read(f, keys, func(name string, _ int64, body io.Reader) error {
			if name != backup.ConfigName {
				return nil
			}
			text, err := io.ReadAll(body)
			if err == nil && !r.DryRun {
				err = durable.Write(d.file, text)
			}
			return err
		})
		return err
	})
	if err == nil {
		u.notice("the configuration of the backup is now %s; edit it before, where hosts or addresses are others now", d.file)
		err = fault.Exit(fault.Advise(fmt.Errorf("cluster %s had no configuration here", m.Cluster), "look at "+d.file+", and run the same command again"), fault.ExitUsage)
	}
	return err
}

// restoreData prepares a restore: what it needs is unpacked, keys are in their place, and where the cluster is there its etcd has the data of the backup.
func (a *App) restoreData(ctx context.Context, r Request, o Observer, source string, keys []backup.Key, m *backup.Manifest) (*restoration, error) {
	r.restore = &cluster.Restore{}
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.fits(m); err != nil {
		return nil, err
	}
	rest, err := w.unpack(ctx, source, keys, m)
	if err != nil {
		return nil, err
	}
	w.restore = &rest.Restore
	s, err := w.alone(ctx, func() (*site, error) {
		s, failed, err := w.reach(ctx, !r.DryRun, v1alpha1.Source{Offline: w.config.Spec.Source.Offline})
		if err == nil && len(failed) > 0 {
			err = joined(failed)
		}
		if err == nil {
			_, err = s.checkOwner(r.Force)
		}
		return s, err
	})
	if err != nil {
		return nil, err
	}
	if rest.ID == "" {
		if err := s.beginRestore(ctx, rest, m); err != nil || r.DryRun {
			return rest, err
		}
	}
	s.cluster.Restore = &rest.Restore
	if !rest.InPlace || rest.Data {
		return rest, nil
	}
	src, err := w.resolveSource(ctx, w.config)
	if err != nil {
		return nil, err
	}
	if s.cluster, err = w.planning(s.cluster.Facts, src); err != nil {
		return nil, err
	}
	s.cluster.Restore = &rest.Restore
	graph, err := planned(s.cluster, pipeline.Restore)
	if err != nil {
		return nil, err
	}
	if _, err := s.run(ctx, "restore", graph); err != nil {
		return nil, fault.AdviseMore(err, "the cluster is down until its restore has ended: run the same command again")
	}
	rest.Data = true
	return rest, w.note(rest)
}

// fits refuses a backup that the configuration cannot be brought about with.
func (w *work) fits(m *backup.Manifest) error {
	spec, is := &w.config.Spec, config.ReleaseOf(&w.config.Spec)
	var err error
	switch {
	case w.config.Metadata.Name != m.Cluster:
		err = fmt.Errorf("the backup is of cluster %s, and the configuration describes %s", m.Cluster, w.config.Metadata.Name)
	case spec.Etcd.Type == v1alpha1.TypeExternal:
		err = errors.New("etcd is external: kubexm does not restore its data")
	case config.Minor(is.Kubernetes) != config.Minor(m.Kubernetes):
		err = fault.Advise(fmt.Errorf("the backup is of Kubernetes %s, and the configuration has %s", m.Kubernetes, is.Kubernetes), "set spec.kubernetes.version to the version of then, and upgrade later")
	case is.Etcd != "" && m.Etcd != "" && config.Minor(is.Etcd) < config.Minor(m.Etcd):
		err = fault.Advise(fmt.Errorf("the backup is of etcd %s, and the configuration has %s, which cannot read its data", m.Etcd, is.Etcd), "set spec.etcd.version to the version of then, or a newer one")
	}
	return fault.Exit(err, fault.ExitUsage)
}

// unpack brings what a restore needs into the cluster's directory, once it was read whole. One that has begun with the same backup goes on.
func (w *work) unpack(ctx context.Context, source string, keys []backup.Key, m *backup.Manifest) (*restoration, error) {
	begun, err := w.begunRestore()
	if err != nil || begun != nil && begun.Taken.Equal(m.Taken) {
		return begun, err
	}
	to := filepath.Join(w.dir, restoreDir)
	part := to + ".part"
	if err := errors.Join(os.RemoveAll(part), os.RemoveAll(to), os.MkdirAll(part, 0o700)); err != nil {
		return nil, durable.Advise(err)
	}
	root, err := os.OpenRoot(part)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	err = w.app.readBackup(ctx, w.Request, w.Observer, source, func(f io.Reader) error {
		_, err := backup.Read(f, keys, func(name string, _ int64, body io.Reader) error { return extract(root, name, body) })
		return err
	})
	if err == nil {
		err = durable.Move(part, to)
	}
	if err != nil {
		return nil, err
	}
	rest := &restoration{Taken: m.Taken}
	rest.Snapshot = filepath.Join(to, backup.SnapshotName)
	if rest.Size, rest.SHA256, err = sumOf(rest.Snapshot); errors.Is(err, fs.ErrNotExist) {
		err = fault.Exit(errors.New("the backup has no data of etcd, which was external"), fault.ExitUsage)
	}
	if err == nil {
		err = etcd.Whole(rest.Snapshot)
	}
	return rest, err
}

// extract writes a file of a backup below a directory.
func extract(root *os.Root, name string, body io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, body)
	return durable.Advise(errors.Join(err, f.Sync(), f.Close()))
}

func sumOf(path string) (size int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, f)
	return size, hex.EncodeToString(h.Sum(nil)), err
}

// beginRestore decides how the cluster is restored, and notes it: from then on there is no way back but a restore.
func (s *site) beginRestore(ctx context.Context, rest *restoration, m *backup.Manifest) error {
	here, err := s.cluster.Certs.RecordedID()
	if err != nil {
		return err
	}
	if here != "" && here != m.ID {
		err := fmt.Errorf("%s has the keys of another cluster of that name: its ID is %s, that of the backup %s", s.cluster.Certs.Dir, here, m.ID)
		return fault.Exit(fault.Advise(err, "restore it with another --workdir"), fault.ExitUsage)
	}
	for _, h := range s.cluster.ControlPlaneHosts() {
		rest.InPlace = rest.InPlace || s.cluster.FactsOf(h).Env["cluster"] == m.Cluster
	}
	if err := cmp.Or(s.checkDead(ctx, m), s.sameAsApplied(rest.InPlace)); err != nil || s.DryRun {
		return err
	}
	if rest.InPlace {
		if s.MayRestore == nil {
			return errUnasked
		}
		if err := s.MayRestore(ctx, Restoring{m.Cluster, m.Taken, s.cluster.All()}); err != nil {
			return err
		}
	}
	id := make([]byte, 4)
	_, _ = rand.Read(id) // never fails
	rest.ID = hex.EncodeToString(id)
	for _, h := range m.Hosts {
		node := slices.Contains(h.Roles, string(v1alpha1.RoleMaster)) || slices.Contains(h.Roles, string(v1alpha1.RoleWorker))
		if node && !slices.Contains(s.cluster.Nodes(), h.Name) {
			rest.Gone = append(rest.Gone, h.Name)
		}
	}
	if !rest.InPlace { // what was remembered is of machines that are gone
		if err := s.records.Forget(); err != nil {
			return err
		}
	}
	if here == "" {
		if err := s.restoreKeys(rest.InPlace); err != nil {
			return durable.Advise(fmt.Errorf("putting the keys of the cluster in place: %w", err))
		}
	}
	return s.note(rest)
}

// restoreKeys puts what the control machine has of the cluster in place; its identity, by which it is known to be there, comes last.
func (s *site) restoreKeys(inPlace bool) error {
	from, id := filepath.Join(s.dir, restoreDir), filepath.Join("certs", "id")
	var files []string
	for _, name := range kept {
		if name == hostKeysFile && !inPlace { // of machines that are gone
			continue
		}
		err := filepath.WalkDir(filepath.Join(from, name), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				var rel string
				rel, err = filepath.Rel(from, path)
				files = append(files, rel)
			}
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	files = append(slices.DeleteFunc(files, func(f string) bool { return f == id }), id)
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(from, f))
		if err == nil {
			err = durable.Write(filepath.Join(s.dir, f), text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sameAsApplied refuses to put data of then below a cluster that is about to change.
func (s *site) sameAsApplied(inPlace bool) error {
	applied, err := s.records.Applied()
	if err != nil || applied == nil || !inPlace {
		return err
	}
	_, err = s.unedited()
	return err
}

// checkDead refuses to make a cluster a second time.
func (s *site) checkDead(ctx context.Context, m *backup.Manifest) error {
	_, port, _ := strings.Cut(strings.TrimPrefix(m.Endpoint, "https://"), ":")
	var alive []string
	for _, h := range m.Hosts {
		mine := slices.ContainsFunc(s.cluster.All(), func(name string) bool { return s.cluster.IP(name) == h.Address })
		if mine || !slices.Contains(h.Roles, string(v1alpha1.RoleMaster)) {
			continue
		}
		for _, name := range s.cluster.ControlPlaneHosts()[:1] {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			conn, err := s.hosts[name].Dial(ctx, "tcp", h.Address+":"+cmp.Or(port, "6443"))
			cancel()
			if err == nil {
				_ = conn.Close()
				alive = append(alive, h.Name+" ("+h.Address+")")
			}
		}
	}
	if alive == nil {
		return nil
	}
	err := fmt.Errorf("THE CLUSTER OF THE BACKUP MAY STILL RUN: an API server answers on %s; two clusters with the same keys and names would both act on what is outside of them", human.Names(alive, 5))
	if s.Force {
		s.notice("warning: %v", err)
		return nil
	}
	return fault.Exit(fault.Advise(err, "stop it, or give --force"), fault.ExitUsage)
}

// note keeps what there is to know of a restore that has begun.
func (w *work) note(rest *restoration) error {
	text, err := json.Marshal(rest)
	if err == nil {
		err = durable.Write(filepath.Join(w.dir, restoreNote), text)
	}
	return err
}

// begunRestore is the restore that has begun and not ended; nil: there is none.
func (w *work) begunRestore() (*restoration, error) {
	text, err := os.ReadFile(filepath.Join(w.dir, restoreNote))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	rest := &restoration{}
	if err == nil {
		err = json.Unmarshal(text, rest)
	}
	return rest, err
}

// checkRestored refuses to change a cluster whose restore has begun in any way but by that.
func (w *work) checkRestored() error {
	rest, err := w.begunRestore()
	if rest == nil || err != nil || w.restore != nil {
		return err
	}
	err = fmt.Errorf("a restore of the backup of %s has begun, and has not ended", rest.Taken.Local().Format(time.DateTime))
	return fault.Exit(fault.Advise(err, "run it again to its end: kubexm restore"), fault.ExitUsage)
}
