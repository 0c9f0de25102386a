package connector

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestSFTP uses the files of an account that may do nothing else.
func TestSFTP(t *testing.T) {
	s := startSSHD(t, "Subsystem sftp internal-sftp", "ForceCommand internal-sftp")
	ctx, cancel := context.WithCancel(t.Context())
	f, err := SFTP(ctx, s.config())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file := filepath.Join(s.dir, "file")
	w, err := f.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	const text = "what was written"
	_, err = w.Write([]byte(text))
	if err = errors.Join(err, w.Sync(), w.Close(), f.PosixRename(file, file+"2")); err != nil {
		t.Error(err)
	}
	if is, err := os.ReadFile(file + "2"); err != nil || string(is) != text {
		t.Errorf("%q, %v", is, err)
	}
	if _, err := f.Open(file); !errors.Is(f.OrLost(err), fs.ErrNotExist) {
		t.Error(err)
	}
	cancel() // leaves time to put things in order
	if err := f.Remove(file + "2"); err != nil {
		t.Error(err)
	}
	s.cut()
	if _, err = f.Stat(file); !fault.IsAway(f.OrLost(err)) {
		t.Error(err)
	}
}

// TestNoSFTP meets a machine without.
func TestNoSFTP(t *testing.T) {
	s := startSSHD(t)
	_, err := SFTP(t.Context(), s.config())
	goldenError(t, err, s.config().Endpoint(), "ADDRESS")
}
