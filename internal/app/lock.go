package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// makeDir makes the cluster's directory, or finds that it cannot be written to.
func (s *session) makeDir() error {
	err := os.MkdirAll(s.dir, 0o700)
	if err == nil {
		err = unix.Access(s.dir, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		err = durable.Advise(fmt.Errorf("making the cluster's directory %s: %w", s.dir, err))
	}
	return fault.Advise(err, "choose another directory: --workdir DIR")
}

// lock takes the cluster for this process. The kernel lets go of it when the
// process ends, however it ends.
func (s *session) lock() error {
	if err := s.makeDir(); err != nil {
		return err
	}
	path := filepath.Join(s.dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return durable.Advise(fmt.Errorf("locking the cluster: %w", err))
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
		return durable.Advise(fmt.Errorf("locking %s: %w", path, err))
	}
	s.release = func() { f.Close() }
	return nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}
