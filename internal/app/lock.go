package app

import (
	"cmp"
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
	"github.com/kubexm/kubexm/pkg/config"
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

// work is a session with what is remembered of the cluster open. It must be closed.
type work struct {
	*session
	records *records
	holder  runner.Holder // of the locks of hosts; its zero value where the lock of the cluster is not held
	ends    []func()      // what is to be done when it is closed, the last first
}

// working is a session with its records.
func (s *session) working(is store.Store, h runner.Holder) *work {
	return &work{s, &records{is, s.use, s.dir, s.config.Metadata.Name}, h, []func(){func() { _ = is.Close() }}} // all was committed
}

// begin opens the records of a cluster and takes its lock.
func (a *App) begin(ctx context.Context, r Request, o Observer) (*work, error) {
	s, err := a.open(ctx, r, o)
	if err != nil {
		return nil, err
	}
	w, err := s.lock()
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(w.stay(), w.forgetUnpacked()); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// stay keeps the version of Kubernetes that the cluster has, where its configuration has none.
func (w *work) stay() error {
	applied, err := w.records.Applied()
	if err != nil || applied == nil || len(applied.Resolved) == 0 {
		return err
	}
	has, err := releaseOf(*applied)
	if err == nil && config.Stay(w.config, has) {
		w.notice("Kubernetes stays at %s, as spec.kubernetes.version is not set; to upgrade: kubexm upgrade cluster%s", has.Kubernetes, w.Which())
	}
	return err
}

// made opens the records of a cluster that was made, without the lock.
func (s *session) made() (*work, error) {
	is, err := s.recorded(s.config.Metadata.Name, s.dir)
	if err != nil {
		return nil, err
	}
	w := s.working(is.Store, runner.Holder{})
	if err = cmp.Or(w.checkMade(), w.stay()); err != nil {
		w.close()
	}
	return w, err
}

// checkMade refuses to look at a cluster that was not made.
func (w *work) checkMade() error {
	applied, err := w.records.Applied()
	if err == nil && applied == nil {
		err = w.noCluster(w.config.Metadata.Name)
	}
	return err
}

// close ends all that was begun with the work.
func (w *work) close() { w.endTo(0) }

// endTo ends what was begun after the first things that are to be done in the end.
func (w *work) endTo(first int) {
	for ; len(w.ends) > first; w.ends = w.ends[:len(w.ends)-1] {
		w.ends[len(w.ends)-1]()
	}
}

// lock takes the cluster for this process. The kernel lets go of it when the
// process ends, however it ends.
func (s *session) lock() (_ *work, err error) {
	if err := s.makeDir(); err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, durable.Advise(fmt.Errorf("locking the cluster: %w", err))
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	for range 10 { // a look at the lock holds it for a moment
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err := fmt.Errorf("another kubexm is at work on cluster %s", s.config.Metadata.Name)
		if held := s.heldBy(); held != nil {
			err = fmt.Errorf("%w: %s", err, held)
		}
		return nil, fault.Advise(err, "wait until it has ended")
	}
	var who runner.Holder
	if err == nil {
		who, err = take(f, s.config.Metadata.Name)
	}
	if err != nil {
		return nil, durable.Advise(fmt.Errorf("locking %s: %w", path, err))
	}
	is, err := s.app.openRecords(s.dir, true, true)
	if err != nil {
		return nil, err
	}
	if err = is.Lease(leaseCluster, holder(), 0); err != nil { // the kernel guards it
		_ = is.Close()
		return nil, err
	}
	w := s.working(is, who)
	w.ends = append(w.ends, w.leaveLog)
	w.ends = append([]func(){func() { f.Close() }}, append(w.ends, func() { _ = is.Release(leaseCluster, holder()) })...) // the next one takes it in any case
	return w, nil
}

// take writes into the lock file whose it is now. The token for the locks of hosts stays the same: that of a run which
// was killed is this one's, as the kernel gives the file to nobody else. But a copy of the file is another one.
func take(f *os.File, cluster string) (runner.Holder, error) {
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
	return runner.Holder{Cluster: cluster, Token: token, Known: true, Who: fmt.Sprintf("%s on %s, %s", userName(), machine, who)}, nil
}

// userName is who runs kubexm, by name where there is one.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprintf("user %d", os.Getuid())
}

// lock takes the locks of all hosts that are connected and that kubexm has worked on, for what is about to change
// them, and keeps all locks until the connections are closed. Others have to be found fit before they are touched: lockFresh.
func (f *fleet) lock(ctx context.Context, h runner.Holder) error {
	renewal, stop := context.WithCancel(context.WithoutCancel(ctx))
	var renewing sync.WaitGroup
	f.holder = h
	renewing.Go(func() { f.renew(renewal) })
	f.unlock = func() {
		stop()
		renewing.Wait()
		_ = f.eachConnected(context.WithoutCancel(ctx), unlockTime, func(ctx context.Context, r *runner.Runner) error { return r.Unlock(ctx, h.Token) }) // it expires
	}
	return f.takeLocks(ctx, h, nil)
}

// lockFresh takes the locks of all hosts that lock has left alone, too, if it took any.
func (s *site) lockFresh(ctx context.Context) error {
	if s.unlock == nil {
		return nil
	}
	h, has := s.fleet.holder, map[string]bool{}
	for host, f := range s.cluster.Facts {
		has[host] = f.Env["cluster"] == h.Cluster
	}
	h.Known = false
	return s.takeLocks(ctx, h, has)
}

// takeLocks asks all hosts for their locks, but those that are known to have given them. Only another holder is an error: a host that is down must not stop what does
// not need it, nor a full disk what makes room.
func (f *fleet) takeLocks(ctx context.Context, h runner.Holder, has map[string]bool) error {
	var other error
	for _, e := range f.eachConnected(ctx, patience, func(ctx context.Context, r *runner.Runner) error {
		if has[r.Host] {
			return nil
		}
		return r.Lock(ctx, h)
	}) {
		if held := (*runner.HeldError)(nil); errors.As(e, &held) {
			other = f.busy(held.Who, "its lock is on host "+e.Host)
		} else if !isDown(e.Err) {
			f.of.notice("warning: the cluster is not locked against another kubexm: %v", e)
		}
	}
	return other
}

// busy is that somebody else works on the cluster; where is what tells that.
func (f *fleet) busy(who, where string) error {
	err := fmt.Errorf("another kubexm is at work on cluster %s: %s (%s)", f.of.config.Metadata.Name, who, where)
	return fault.Advise(err, "wait until it has ended; the lock of one that was killed expires after a minute, or is removed by: kubexm unlock"+f.of.Which())
}

// unlockTime is how long a host may take to remove its lock.
const unlockTime = 10 * time.Second

// renew renews the locks until it is stopped. Where that fails, the run goes on: the host may be down for a while. Where somebody
// else has one, the run stops: this process has slept for longer than a lock lasts.
func (f *fleet) renew(ctx context.Context) {
	const every = runner.LockTime / 3
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, e := range f.eachConnected(ctx, every, func(ctx context.Context, r *runner.Runner) error { return r.Lock(ctx, f.holder) }) {
			if held := (*runner.HeldError)(nil); errors.As(e, &held) {
				f.takenOver("lock on "+e.Host, held.Who)
				return
			}
		}
	}
}

// takenOver stops the run, as somebody else has one of its locks.
func (f *fleet) takenOver(lock, who string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.takenBy == nil {
		f.takenBy = fault.Advise(fmt.Errorf("the %s was taken over, by %s: stopped", lock, who), "wait until that one has ended, and see what it has done: kubexm runs"+f.of.Which())
		close(f.taken)
	}
}

// lost is why the run is not to go on; nil: it may.
func (f *fleet) lost() error {
	select {
	case <-f.taken:
		return f.takenBy
	default:
		return nil
	}
}

// Locked is what somebody has locked: a host, by name, or the lease in the cluster.
type Locked struct{ Where, Who string }

// Unlock removes the locks of all hosts that can be reached, and the lease in a cluster that runs, whosever they are, if
// MayUnlock agrees. It is for those of runs that were killed, before they expire.
func (a *App) Unlock(ctx context.Context, r Request, o Observer) ([]Locked, error) {
	s, err := a.open(ctx, r, o)
	if err != nil {
		return nil, err
	}
	if err := s.makeDir(); err != nil {
		return nil, err
	}
	f, failed := s.dialAll(ctx)
	defer f.hangUp()
	all, mute := f.locked(ctx)
	failed = append(failed, mute...)
	for _, e := range failed {
		s.notice("warning: left out: %v", e)
	}
	if len(failed) == len(s.config.Spec.Hosts) {
		return nil, joined(failed)
	}
	leasedBy, client := f.lease(ctx)
	if leasedBy != "" {
		all = append(all, Locked{leaseTitle, leasedBy})
	}
	if len(all) == 0 {
		return nil, nil
	}
	if s.MayUnlock == nil {
		return nil, errUnasked
	}
	if err := s.MayUnlock(ctx, all); err != nil {
		return nil, err
	}
	removed := map[string]bool{}
	failed = f.eachConnected(ctx, patience, func(ctx context.Context, r *runner.Runner) error {
		if !slices.ContainsFunc(all, func(l Locked) bool { return l.Where == r.Host }) {
			return nil
		}
		err := r.Unlock(ctx, "")
		f.mu.Lock()
		defer f.mu.Unlock()
		removed[r.Host] = err == nil
		return err
	})
	err = joined(failed)
	if leasedBy != "" {
		kept := client.RemoveLease(ctx, leaseNamespace, leaseName)
		removed[leaseTitle], err = kept == nil, errors.Join(err, kept)
	}
	return slices.DeleteFunc(slices.Clone(all), func(l Locked) bool { return !removed[l.Where] }), err
}

// locked are the hosts that somebody has locked, by name, and those that cannot be asked.
func (f *fleet) locked(ctx context.Context) (all []Locked, failed []*HostError) {
	failed = f.eachConnected(ctx, patience, func(ctx context.Context, r *runner.Runner) error {
		by, err := r.LockedBy(ctx)
		if by.Token != "" {
			f.mu.Lock()
			defer f.mu.Unlock()
			all = append(all, Locked{r.Host, by.Who})
		}
		return err
	})
	slices.SortFunc(all, func(a, b Locked) int { return strings.Compare(a.Where, b.Where) })
	return all, failed
}

// errUnasked is the answer to a question that nobody is there to be asked.
var errUnasked = fault.Exit(errors.New("this needs a confirmation, and nobody can be asked"), fault.ExitUsage)

// leaseCluster is the lease of who works on the cluster.
const leaseCluster = "cluster"

// holder is this process, as others are told of it.
func holder() string {
	host, _ := os.Hostname() // without one the number has to do
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}

// heldBy is who works on the cluster; nil: not known.
func (s *session) heldBy() *store.Held {
	records, err := s.app.openRecords(s.dir, false, false)
	if err != nil {
		return nil
	}
	defer records.Close()
	held, _ := records.Holder(leaseCluster) // only to be told
	return held
}
