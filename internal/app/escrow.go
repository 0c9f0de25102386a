package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/backup"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// The escrow is what the control machine alone has of a cluster, encrypted for those who can read backups: on its masters, and noted in its directory for whom it is.
const (
	escrowFile = runner.StateDir + "/escrow.age"
	escrowNote = "escrow"
)

// largest is how many bytes of it a host gives back at once, and some.
const largest = 32 << 20

// escrow leaves it with the masters after a run that has changed something, also where that failed, as keys may be others now; and where others are to read it. That it cannot be left is no trouble of the run.
func (s *site) escrow(ctx context.Context, res *Result) {
	names := s.config.Spec.Backup.Recipients
	sum := sha256.Sum256([]byte(strings.Join(names, "\n")))
	note, is := filepath.Join(s.dir, escrowNote), hex.EncodeToString(sum[:])
	was, err := os.ReadFile(note)
	if err != nil && len(names) == 0 || res.Summary.Changed == 0 && string(was) == is {
		return
	}
	err = os.Remove(note) // until all masters have what is true now
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	var sealed []byte
	if err == nil && len(names) > 0 {
		sealed, err = s.sealed(names)
	}
	if err == nil {
		err = joined(s.eachConnected(ctx, time.Minute, func(ctx context.Context, r *runner.Runner) error {
			switch h := s.cluster.Host(r.Host); {
			case h == nil || !h.Is(v1alpha1.RoleMaster):
				return nil
			case sealed == nil: // nobody is to read it any more
				return r.Remove(ctx, escrowFile)
			default:
				return r.WriteFiles(ctx, runner.File{Path: escrowFile, Mode: 0o600, Data: sealed})
			}
		}))
	}
	masters := s.cluster.Missing()
	if err == nil && sealed != nil && !slices.ContainsFunc(masters, func(h string) bool { return s.cluster.Host(h).Is(v1alpha1.RoleMaster) }) {
		err = durable.Write(note, []byte(is))
	}
	if err != nil {
		s.notice("warning: what this machine alone has of the cluster is not on all masters as it is now: %v", err)
	}
}

// sealed is what is left with the masters. Records that are too large stay here.
func (s *site) sealed(names []string) ([]byte, error) {
	recipients, err := backup.Recipients(names)
	if err != nil {
		return nil, err
	}
	m, entries, err := s.entrusted()
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e backup.Entry) bool { return e.Size > largest })
	var b bytes.Buffer
	err = backup.Write(&b, recipients, m, entries...)
	return b.Bytes(), err
}

// Regained is what a control machine has again.
type Regained struct {
	backup.Manifest
	Config string `json:"config"`         // file
	Kept   bool   `json:"kept,omitempty"` // that was there before, and stayed
	Dir    string `json:"dir"`            // of the cluster
}

// Regain brings back what a control machine alone had of a cluster that goes on, from a backup, or where source is empty from a master: its keys, records and configuration. What is
// there already is not touched, and no host is changed.
func (a *App) Regain(ctx context.Context, r Request, o Observer, source string, master v1alpha1.Host, keys []backup.Key) (*Regained, error) {
	var sealed []byte
	read := func(use func(io.Reader) error) error { return a.readBackup(ctx, r, o, source, use) }
	if source == "" {
		var err error
		if sealed, err = a.escrowOf(ctx, r, o, master); err != nil {
			return nil, err
		}
		read = func(use func(io.Reader) error) error {
			if err := use(bytes.NewReader(sealed)); err != nil {
				return fault.Exit(fmt.Errorf("reading %s of %s: %w", escrowFile, master.Address, err), fault.ExitUsage)
			}
			return nil
		}
	}
	part, err := a.temporary()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(part)
	is := &Regained{}
	err = read(func(f io.Reader) error {
		m, err := unpack(f, keys, part, func(name string, _ int64) bool { return name != backup.SnapshotName })
		if err == nil {
			is.Manifest = *m
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if r.Name != "" && r.Name != is.Cluster {
		return nil, fault.Exit(fmt.Errorf("it is of cluster %s, --name says %s", is.Cluster, r.Name), fault.ExitUsage)
	}
	return is, a.regain(part, is)
}

// regain puts files in place that were read whole.
func (a *App) regain(part string, is *Regained) error {
	is.Dir, is.Config = filepath.Join(a.Workdir, is.Cluster), filepath.Join("conf", is.Cluster, "cluster.yaml")
	if store.Exists(is.Dir) {
		return fault.Exit(fault.Advise(fmt.Errorf("%s has a cluster of that name", is.Dir), "nothing needs to be brought back; or give another --workdir"), fault.ExitUsage)
	}
	text, err := os.ReadFile(filepath.Join(part, backup.ConfigName))
	if err != nil {
		return err
	}
	if err := errors.Join(os.Remove(filepath.Join(part, backup.ConfigName)), os.MkdirAll(filepath.Dir(is.Dir), 0o700)); err != nil {
		return err
	}
	if entries, err := os.ReadDir(is.Dir); err == nil && len(entries) > 0 { // host keys, of a command before
		for _, e := range entries {
			if e.Name() != hostKeysFile && e.Name() != "lock" && e.Name() != "logs" {
				return fault.Exit(fault.Advise(fmt.Errorf("%s is not empty: it has %s", is.Dir, e.Name()), "move it away"), fault.ExitUsage)
			}
		}
		if err := os.RemoveAll(is.Dir); err != nil {
			return err
		}
	} else if err := os.Remove(is.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = os.Lstat(is.Config)
	is.Kept = err == nil
	if errors.Is(err, fs.ErrNotExist) { // first: what follows cannot be repeated
		err = durable.Write(is.Config, text)
	}
	if err != nil {
		return err
	}
	return durable.Advise(durable.Move(part, is.Dir))
}

// escrowOf reads what a master keeps.
func (a *App) escrowOf(ctx context.Context, r Request, o Observer, master v1alpha1.Host) ([]byte, error) {
	f, err := a.reachMaster(ctx, r, o, &master)
	if f != nil {
		defer f.hangUp()
	}
	if err != nil {
		return nil, err
	}
	files, err := f.hosts[master.Name].ReadFiles(ctx, escrowFile)
	if err == nil && len(files) == 0 {
		err = fault.Advise(fmt.Errorf("it has no %s", escrowFile), "it is there on masters where spec.backup.recipients was set; a backup does as well: kubexm recover BACKUP")
	}
	if err != nil {
		return nil, &HostError{master.Name, err}
	}
	return files[escrowFile].Data, nil
}
