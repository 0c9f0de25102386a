package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/runner"
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
		if held := s.heldBy(); held != nil {
			err = fmt.Errorf("%w: %s", err, held)
		}
		return fault.Advise(err, "wait until it has ended")
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("locking %s: %w", path, err)
	}
	if s.holder, err = take(f); err != nil {
		f.Close()
		return durable.Advise(fmt.Errorf("locking %s: %w", path, err))
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

// take writes into the lock file whose it is now. The token for the locks of hosts stays the same: that of a run which
// was killed is this one's, as the kernel gives the file to nobody else. But a copy of the file is another one.
func take(f *os.File) (runner.Holder, error) {
	var is unix.Stat_t
	text, err1 := io.ReadAll(f)
	if err := errors.Join(err1, unix.Fstat(int(f.Fd()), &is)); err != nil {
		return runner.Holder{}, err
	}
	this := fmt.Sprintf("%d:%d", is.Dev, is.Ino)
	token := rand.Text()
	if l := strings.Split(string(text), "\n"); len(l) > 2 && l[1] != "" && l[2] == this {
		token = l[1]
	}
	who := fmt.Sprintf("process %d, since %s", os.Getpid(), time.Now().Format(time.DateTime))
	err := f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(who+"\n"+token+"\n"+this+"\n"), 0)
	}
	if err != nil {
		return runner.Holder{}, err
	}
	machine, err := os.Hostname()
	if err != nil {
		machine = "an unnamed machine"
	}
	return runner.Holder{Token: token, Known: true, Who: fmt.Sprintf("%s on %s, %s", userName(), machine, who)}, nil
}

// userName is who runs kubexm, by name where there is one.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprintf("user %d", os.Getuid())
}

// lockHosts takes the locks of all hosts that are connected and that kubexm has worked on, for what is about to change
// them, and keeps all locks until the session is closed. Others have to be found fit before they are touched.
func (s *session) lockHosts(ctx context.Context) error {
	if !s.exclusive {
		return nil
	}
	renewal, stop := context.WithCancel(context.WithoutCancel(ctx))
	var renewing sync.WaitGroup
	renewing.Go(func() { s.renew(renewal) })
	release := s.release
	s.release = func() {
		stop()
		renewing.Wait()
		_ = s.eachConnected(context.WithoutCancel(ctx), unlockTime, func(ctx context.Context, r *runner.Runner) error { return r.Unlock(ctx, s.holder.Token) }) // it expires
		release()
	}
	s.holder.Cluster = s.config.Metadata.Name
	return s.takeLocks(ctx, s.holder)
}

// lockFresh takes the locks of all hosts that lockHosts has left alone, too.
func (s *session) lockFresh(ctx context.Context) error {
	if !s.exclusive {
		return nil
	}
	h := s.holder
	h.Known = false
	return s.takeLocks(ctx, h)
}

// takeLocks asks all hosts for their locks. Only another holder is an error: a host that is down must not stop what does
// not need it, nor a full disk what makes room.
func (s *session) takeLocks(ctx context.Context, h runner.Holder) error {
	var other error
	for _, e := range s.eachConnected(ctx, patience, func(ctx context.Context, r *runner.Runner) error { return r.Lock(ctx, h) }) {
		if held := (*runner.HeldError)(nil); errors.As(e, &held) {
			other = fmt.Errorf("another kubexm is at work on cluster %s: %s (its lock is on host %s)", s.config.Metadata.Name, held.Who, e.Host)
		} else if !isDown(e.Err) {
			s.notice("warning: the cluster is not locked against another kubexm: %v", e)
		}
	}
	return fault.Advise(other, "wait until it has ended; the lock of one that was killed expires after a minute, or is removed by: kubexm unlock"+s.Which())
}

// unlockTime is how long a host may take to remove its lock.
const unlockTime = 10 * time.Second

// renew renews the locks until it is stopped. Where that fails, the run goes on: the host may be down for a while.
func (s *session) renew(ctx context.Context) {
	const every = runner.LockTime / 3
	tick := time.NewTicker(every)
	defer tick.Stop()
	lost := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, e := range s.eachConnected(ctx, every, func(ctx context.Context, r *runner.Runner) error { return r.Lock(ctx, s.holder) }) {
			if held := (*runner.HeldError)(nil); errors.As(e, &held) && !lost[e.Host] {
				lost[e.Host] = true
				s.notice("warning: %s was taken over: %s", e.Host, held)
			}
		}
	}
}

// Locked is a host with the lock of somebody.
type Locked struct{ Host, Who string }

// Unlock removes the locks of all hosts that can be reached, whosever they are, if sure agrees. It is for those of runs
// that were killed, before they expire.
func Unlock(ctx context.Context, o Options, sure func([]Locked) error) ([]Locked, error) {
	s, err := open(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.makeDir(); err != nil {
		return nil, err
	}
	failed := s.dialAll(ctx)
	var all []Locked
	failed = append(failed, s.eachConnected(ctx, patience, func(ctx context.Context, r *runner.Runner) error {
		by, err := r.LockedBy(ctx)
		if by.Token != "" {
			s.mu.Lock()
			defer s.mu.Unlock()
			all = append(all, Locked{r.Host, by.Who})
		}
		return err
	})...)
	for _, e := range failed {
		s.notice("warning: left out: %v", e)
	}
	if len(failed) == len(s.config.Spec.Hosts) {
		return nil, joined(failed)
	}
	slices.SortFunc(all, func(a, b Locked) int { return strings.Compare(a.Host, b.Host) })
	if len(all) == 0 {
		return nil, nil
	}
	if err := sure(all); err != nil {
		return nil, err
	}
	failed = s.eachConnected(ctx, patience, func(ctx context.Context, r *runner.Runner) error {
		if !slices.ContainsFunc(all, func(l Locked) bool { return l.Host == r.Host }) {
			return nil
		}
		return r.Unlock(ctx, "")
	})
	return all, joined(failed)
}

// leaseCluster is the lease of who works on the cluster.
const leaseCluster = "cluster"

// holder is this process, as others are told of it.
func holder() string {
	host, _ := os.Hostname() // without one the number has to do
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}

// heldBy is who works on the cluster; nil: not known.
func (s *session) heldBy() *store.Held {
	records, err := s.openRecords(s.dir, false, false)
	if err != nil {
		return nil
	}
	defer records.Close()
	held, _ := records.Holder(leaseCluster) // only to be told
	return held
}
