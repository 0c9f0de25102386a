package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/backup"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/pipeline"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// restorePipe is the pipeline that brings the data of a backup to etcd in place.
const restorePipe = "restore"

// Where a backup is unpacked in a cluster's directory until the cluster is restored, and what is noted of that.
const (
	restoreDir  = "restore"
	restoreNote = "restore.json"
)

// restoration is one that has begun.
type restoration struct {
	cluster.Restore
	From string `json:",omitempty"` // the host whose member's data it is; empty: of a backup
	Data bool   // etcd has it, in place
}

// what names it.
func (r *restoration) what() string {
	if r.From != "" {
		return "a recovery of etcd from " + r.From
	}
	return "a restore of the backup of " + r.Taken.Local().Format(time.DateTime)
}

// dir is where its backup is unpacked, in the cluster's directory.
func (r *restoration) dir() string {
	return filepath.Join(restoreDir, r.Taken.UTC().Format("20060102T150405Z"))
}

// Restoring is what a restore is about to do, for whoever is asked.
type Restoring struct {
	Cluster string    `json:"cluster"`
	Taken   time.Time `json:"taken"`
	From    string    `json:"from,omitempty"` // the host whose member of etcd has the data; empty: it is that of a backup
	Hosts   []string  `json:"hosts"`
}

// Restore makes a cluster again that a backup is of: on the machines that it had, whose etcd gets the data of then, or on others, as the configuration says, where it is
// created with the keys and the data of the backup. It can be repeated until it has ended well. MayRestore is asked before a cluster loses what has changed since.
func (a *App) Restore(ctx context.Context, r Request, o Observer, source string, keys []backup.Key) (*Result, error) {
	m, err := a.Manifest(ctx, r, o, source, keys)
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
	if err != nil {
		return nil, err
	}
	return a.endRestore(ctx, r, o, m.Cluster, rest)
}

// endRestore brings the rest of a cluster about whose etcd has its data, or begins with it.
func (a *App) endRestore(ctx context.Context, r Request, o Observer, name string, rest *restoration) (*Result, error) {
	r.restore = &rest.Restore
	res, err := a.create(ctx, r, o, false)
	if err != nil {
		return res, fault.AdviseMore(err, "then run the same command again")
	}
	dir := filepath.Join(a.Workdir, name)
	if err := cmp.Or(os.Remove(filepath.Join(dir, restoreNote)), os.RemoveAll(filepath.Join(dir, restoreDir))); err != nil {
		return res, fmt.Errorf("removing what a restore needs: %w", err)
	}
	if rest.InPlace {
		a.use(r, o).notice("the data that etcd had before is kept on its members, in before-%s beside the data of now; remove it once it is not needed", rest.ID)
	}
	return res, nil
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
	var text []byte
	err = a.readBackup(ctx, r, o, source, func(f io.Reader) error {
		_, err := backup.Read(f, keys, func(name string, _ int64, body io.Reader) (err error) {
			if name == backup.ConfigName {
				text, err = io.ReadAll(body)
			}
			return err
		})
		return err
	})
	if err == nil {
		err = durable.Write(d.file, text)
	}
	if err == nil {
		err = fmt.Errorf("cluster %s had no configuration here; %s is now that of the backup", m.Cluster, d.file)
		err = fault.Exit(fault.Advise(err, "edit it, where hosts or addresses are others now, and run the same command again"), fault.ExitUsage)
	}
	return err
}

// restoreData prepares a restore: what it needs is unpacked, keys are in their place, and where the cluster is there its etcd has the data of the backup.
func (a *App) restoreData(ctx context.Context, r Request, o Observer, source string, keys []backup.Key, m *backup.Manifest) (_ *restoration, err error) {
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
	defer func() {
		if rest.ID == "" { // it has not begun: nothing of it stays
			err = errors.Join(err, os.RemoveAll(filepath.Join(w.dir, rest.dir())))
		}
	}()
	s, err := w.reachRestored(ctx, rest, m)
	if err != nil {
		return nil, err
	}
	if rest.ID == "" {
		if err := s.beginRestore(ctx, rest, m); err != nil {
			return nil, err
		}
	}
	return rest, s.bringData(ctx, rest)
}

// reachRestored connects to the machines that a cluster is restored on.
func (w *work) reachRestored(ctx context.Context, rest *restoration, m *backup.Manifest) (*site, error) {
	w.restore = &rest.Restore
	src, err := w.resolveSource(ctx, w.config)
	if err != nil {
		return nil, err
	}
	return w.alone(ctx, func() (*site, error) {
		s, failed, err := w.reach(ctx, true, src)
		if err == nil {
			failed, err = s.leaveOut(failed)
			err = errors.Join(joined(failed), err)
		}
		if err == nil {
			err = s.checkRestorable(m)
		}
		return s, err
	})
}

// bringData gives etcd its data where the machines have the cluster.
func (s *site) bringData(ctx context.Context, rest *restoration) error {
	if !rest.InPlace || rest.Data {
		return nil
	}
	graph, err := planned(s.cluster, pipeline.Restore)
	if err != nil {
		return err
	}
	if _, err := s.run(ctx, restorePipe, graph); err != nil {
		return fault.AdviseMore(err, "the cluster is down until its restore has ended: run the same command again")
	}
	rest.Data = true
	return s.note(rest)
}

// unpack brings what a restore needs into the cluster's directory, once it was read whole. One that has begun with the same backup goes on.
func (w *work) unpack(ctx context.Context, source string, keys []backup.Key, m *backup.Manifest) (*restoration, error) {
	rest, err := w.begunRestore()
	if err != nil {
		return nil, err
	}
	if rest == nil || !rest.Taken.Equal(m.Taken) {
		rest = &restoration{Restore: cluster.Restore{Taken: m.Taken}}
	}
	to := filepath.Join(w.dir, rest.dir())
	rest.Snapshot = filepath.Join(to, backup.SnapshotName)
	if rest.ID != "" {
		if size, sum, err := sumOf(rest.Snapshot); err == nil && size == rest.Size && sum == rest.SHA256 {
			return rest, nil
		}
	}
	part := to + ".part"
	if err := errors.Join(os.RemoveAll(part), os.RemoveAll(to), os.MkdirAll(part, 0o700)); err != nil {
		return nil, durable.Advise(err)
	}
	defer os.RemoveAll(part)
	err = w.app.readBackup(ctx, w.Request, w.Observer, source, func(f io.Reader) error {
		_, err := unpack(f, keys, part, func(string, int64) bool { return true })
		return err
	})
	if err == nil {
		err = durable.Move(part, to)
	}
	if err != nil {
		return nil, err
	}
	size, sum, err := sumOf(rest.Snapshot)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fault.Exit(errors.New("the backup has no data of etcd, which was external"), fault.ExitUsage)
	case err == nil && rest.ID != "" && sum != rest.SHA256:
		err = fault.Exit(errors.New("it is another backup than the one that the restore has begun with"), fault.ExitUsage)
	case err == nil:
		rest.Size, rest.SHA256, err = size, sum, etcd.Whole(rest.Snapshot)
	}
	if err != nil && rest.ID == "" {
		err = errors.Join(err, os.RemoveAll(to))
	}
	return rest, err
}

// mayRestore asks whether the cluster may lose what has changed since.
func (s *site) mayRestore(ctx context.Context, rest *restoration) error {
	if s.MayRestore == nil {
		return errUnasked
	}
	return s.MayRestore(ctx, Restoring{s.config.Metadata.Name, rest.Taken, rest.From, s.cluster.All()})
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
	if rest.InPlace, err = s.inPlace(); err != nil {
		return err
	}
	if err := cmp.Or(s.checkDead(ctx, m), s.checkEdited(rest.InPlace), s.checkUtility(ctx)); err != nil {
		return err
	}
	if rest.InPlace {
		if err := s.mayRestore(ctx, rest); err != nil {
			return err
		}
	}
	for _, h := range m.Hosts {
		if h.Is(string(v1alpha1.RoleMaster)) || h.Is(string(v1alpha1.RoleWorker)) {
			rest.Nodes = append(rest.Nodes, h.Name)
		}
	}
	if !rest.InPlace { // what was remembered is of machines that are gone
		if err := s.records.Forget(); err != nil {
			return err
		}
	}
	if here == "" {
		if err := s.restoreKeys(rest); err != nil {
			return durable.Advise(fmt.Errorf("putting the keys of the cluster in place: %w", err))
		}
	}
	former, err := s.begunRestore()
	if err != nil {
		return err
	}
	id := make([]byte, 4)
	_, _ = rand.Read(id) // never fails
	// Clients have seen no revision that is as high, also of a restore before: etcd makes fewer than a thousand a second for years.
	rest.Bump = time.Now().UnixMilli()
	rest.ID = hex.EncodeToString(id)
	if err := s.note(rest); err != nil || former == nil || former.dir() == rest.dir() {
		return err
	}
	return os.RemoveAll(filepath.Join(s.dir, former.dir()))
}

// restoreKeys puts what the control machine has of the cluster in place; its identity, by which it is known to be there, comes last.
func (s *site) restoreKeys(rest *restoration) error {
	from, id := filepath.Join(s.dir, rest.dir()), filepath.Join("certs", "id")
	var files []string
	for _, name := range kept {
		if _, err := os.Stat(filepath.Join(s.dir, name)); name == hostKeysFile && (!rest.InPlace || err == nil) { // of machines that are gone, or older than those that are there
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
	rest.Snapshot = filepath.Join(w.dir, rest.dir(), backup.SnapshotName)
	return rest, err
}

// forgetUnpacked removes what a restore that was killed before it had begun has unpacked.
func (w *work) forgetUnpacked() error {
	if rest, err := w.begunRestore(); rest != nil || err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(w.dir, restoreDir))
}

// checkRestored refuses to change a cluster whose restore has begun in any way but by that.
func (w *work) checkRestored() error {
	rest, err := w.begunRestore()
	if rest == nil || err != nil || w.restore != nil {
		return err
	}
	err = fmt.Errorf("%s has begun, and has not ended", rest.what())
	again := "kubexm restore"
	if rest.From != "" {
		again = "kubexm etcd recover --from " + rest.From
	}
	out := "run it again to its end: " + again + "; or, where it has not touched a machine yet, or only the configuration is to follow, give it up: rm "
	return fault.Exit(fault.Advise(err, out+runner.Quote(filepath.Join(w.dir, restoreNote))), fault.ExitUsage)
}
