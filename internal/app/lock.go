package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubexm/kubexm/internal/store"
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
		f.Close()
		err := fmt.Errorf("another kubexm is at work on cluster %s", s.config.Metadata.Name)
		if held := s.holder(); held != nil {
			err = fmt.Errorf("%w: %s", err, held)
		}
		return fault.Advise(err, "wait until it has ended")
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("locking %s: %w", path, err)
	}
	s.release, s.alone = func() { f.Close() }, true
	if err = s.remember(true); err == nil {
		err = s.records.Lease(leaseCluster, holder(), 0) // the kernel guards it
	}
	if err != nil {
		s.close()
	}
	return err
}

// leaseCluster is the lease of who works on the cluster.
const leaseCluster = "cluster"

// holder is this process, as others are told of it.
func holder() string {
	host, _ := os.Hostname() // without one the number has to do
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}

// holder is who works on the cluster; nil: not known.
func (s *session) holder() *store.Held {
	records, err := s.openRecords(s.dir, false, false)
	if err != nil {
		return nil
	}
	defer records.Close()
	held, _ := records.Holder(leaseCluster) // only to be told
	return held
}
