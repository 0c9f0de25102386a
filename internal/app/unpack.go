package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubexm/kubexm/pkg/backup"
	"github.com/kubexm/kubexm/pkg/backup/place"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Manifest reads what a backup says of itself, and no further.
func (a *App) Manifest(ctx context.Context, r Request, o Observer, source string, keys []backup.Key) (m *backup.Manifest, err error) {
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
	places, err := s.places(ctx, nil)
	if err != nil {
		return nil, err
	}
	var at place.Place
	var found place.Object
	for _, p := range places {
		all, wrong := p.List(ctx, s.config.Metadata.Name)
		if wrong != nil {
			s.notice("warning: listing backups in %s: %v", p, wrong)
		}
		for _, o := range all {
			if (o.Name == source || source == "latest") && (at == nil || o.Taken.After(found.Taken)) {
				at, found = p, o
			}
		}
	}
	if at == nil {
		err = fmt.Errorf("there is no file %s, and no backup of that name in %s of spec.backup.targets", source, human.Count(len(places), "place"))
		return nil, fault.Exit(fault.Advise(err, "list them: kubexm backup list"+s.Which()), fault.ExitUsage)
	}
	s.notice("reading %s in %s", found.Name, at)
	return at.Open(ctx, found.Name)
}

// unpack reads a backup whole, and writes those of its files that are wanted below a directory.
func unpack(f io.Reader, keys []backup.Key, dir string, wanted func(name string, size int64) bool) (m *backup.Manifest, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return backup.Read(f, keys, func(name string, size int64, body io.Reader) error {
		if !wanted(name, size) {
			return nil
		}
		return extract(root, name, body)
	})
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

// temporary makes a directory for what is unpacked for a while, and removes those of processes that were killed: they have secrets.
func (a *App) temporary() (string, error) {
	const prefix = ".unpacked-"
	if err := os.MkdirAll(a.Workdir, 0o700); err != nil {
		return "", durable.Advise(err)
	}
	left, err := filepath.Glob(filepath.Join(a.Workdir, prefix+"*"))
	if err != nil {
		return "", err
	}
	for _, dir := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
			if err := os.RemoveAll(dir); err != nil {
				return "", durable.Advise(err)
			}
		}
	}
	dir, err := os.MkdirTemp(a.Workdir, fmt.Sprintf("%s%d-*", prefix, os.Getpid()))
	return dir, durable.Advise(err)
}
