package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/kubexm/kubexm/pkg/pki"
)

// FormerKeys lists the keys and certificates of authorities that rotations have replaced, on the control machine. Nothing is changed.
func (a *App) FormerKeys(ctx context.Context, r Request, o Observer) ([]string, error) {
	s, err := a.open(ctx, r, o)
	if err != nil {
		return nil, err
	}
	return s.formerKeys()
}

func (s *session) formerKeys() ([]string, error) {
	return (&pki.Store{Dir: filepath.Join(s.dir, "certs")}).Dropped()
}

// DestroyFormerKeys removes them, and lists what is gone. Backups have what they had; what masters keep of it is replaced by the next run.
func (a *App) DestroyFormerKeys(ctx context.Context, r Request, o Observer) (gone []string, err error) {
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	all, err := w.formerKeys()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	_ = os.Remove(filepath.Join(w.dir, escrowNote)) // there may be none
	for _, f := range all {
		if e := os.Remove(f); e != nil {
			err = errors.Join(err, e)
			continue
		}
		gone = append(gone, f)
	}
	return gone, err
}
