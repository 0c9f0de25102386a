package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// lock takes the cluster for this process. The kernel lets go of it when the
// process ends, however it ends.
func (s *session) lock() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("making the cluster's directory: %w", err)
	}
	path := filepath.Join(s.dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("locking the cluster: %w", err)
	}
	for range 10 { // a look at the lock holds it for a moment
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		holder, _ := os.ReadFile(path) // only to be told
		f.Close()
		err := fmt.Errorf("another kubexm is at work on cluster %s: %s", s.config.Metadata.Name, strings.TrimSpace(string(holder)))
		return fault.Advise(err, "wait until it has ended")
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("locking %s: %w", path, err)
	}
	note := fmt.Sprintf("process %d, since %s\n", os.Getpid(), time.Now().Format(time.DateTime))
	if err := errors.Join(f.Truncate(0), writeAt(f, note)); err != nil {
		f.Close()
		return fmt.Errorf("locking %s: %w", path, err)
	}
	s.release = func() { f.Close() }
	return nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}
