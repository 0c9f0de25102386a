package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step/cleanup"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Results of runs without an end: the last one while somebody works on the cluster, and others.
const (
	running = "running"
	cutOff  = "cut off"
)

// records are what is remembered of a cluster.
type records struct {
	store.Store
	*use
	dir, name string
}

// openRecords opens what is remembered of the cluster in a directory; alone tells that its lock is held here.
func (a *App) openRecords(dir string, create, alone bool) (store.Store, error) {
	opened := a.Store
	opened.Create = create
	if !alone {
		opened.Busy = func() bool { return locked(dir) }
	}
	return store.Open(dir, opened)
}

// history opens what is remembered of the cluster that is named, or described in the file. It must be closed.
func (u *use) history() (*records, error) {
	name := u.Name
	if name == "" {
		now := *u
		now.Revision = "" // which is one of these records
		_, conf, err := now.read()
		if err != nil {
			return nil, err
		}
		name = conf.Metadata.Name
	}
	return u.recorded(name, filepath.Join(u.app.Workdir, name))
}

// recorded opens what is remembered of a cluster that was made.
func (u *use) recorded(name, dir string) (*records, error) {
	is, err := u.app.openRecords(dir, false, false)
	if errors.Is(err, fs.ErrNotExist) {
		err = u.noCluster(name)
	}
	return &records{is, u, dir, name}, err
}

// noCluster says that a cluster was not made.
func (u *use) noCluster(name string) error {
	err := fmt.Errorf("there is no cluster %s: no record of it is in %s", name, filepath.Join(u.app.Workdir, name))
	return fault.Exit(fault.Advise(err, "create it with: kubexm create cluster"+u.Which()+"; or give the --workdir that it was created in"), fault.ExitUsage)
}

// runs are the runs of the cluster, of which there is at least one. A run without an end is "running" when it is the
// last one and somebody works on the cluster, else "cut off".
func (p *records) runs() ([]store.Run, error) {
	busy := locked(p.dir) // asked before: a run that ends in between has its end
	runs, err := p.Runs()
	if err == nil && len(runs) == 0 {
		err = p.noCluster(p.name)
	}
	for i := range runs {
		runs[i].Result = result(runs[i], busy && i == len(runs)-1)
	}
	return runs, err
}

func result(r store.Run, last bool) string {
	switch {
	case r.Result != "":
		return r.Result
	case last:
		return running
	}
	return cutOff
}

// run finds a run; the last one when id is empty.
func (p *records) run(id string) (store.Run, error) {
	runs, err := p.runs()
	if err != nil {
		return store.Run{}, err
	}
	if id == "" {
		return runs[len(runs)-1], nil
	}
	i := slices.IndexFunc(runs, func(r store.Run) bool { return r.ID == id })
	if i < 0 {
		return store.Run{}, fault.Exit(fault.Advise(fmt.Errorf("no run %s is recorded in %s", id, p.dir), "list runs with: kubexm runs"+p.Which()), fault.ExitUsage)
	}
	return runs[i], nil
}

// Runs lists the recorded runs of a cluster, oldest first.
func (a *App) Runs(r Request) ([]store.Run, error) {
	p, err := a.use(r, Observer{}).history()
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.runs()
}

// Events reads the events of a run, of the last one when id is empty. With
// follow it goes on until the run or ctx ends.
func (a *App) Events(ctx context.Context, r Request, id string, follow bool, each func(engine.Event) error) error {
	p, err := a.use(r, Observer{}).history()
	if err != nil {
		return err
	}
	defer p.Close()
	run, err := p.run(id)
	if err != nil {
		return err
	}
	for seen := int64(0); ; {
		live := follow && run.Result == running // asked before reading on, so that the last events are read
		err := p.Events(run, seen, func(number int64, ev engine.Event) error {
			seen = number
			return each(ev)
		})
		if err != nil || !live {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
		if run, err = p.run(run.ID); err != nil {
			return err
		}
	}
}

// CriticalPath returns the chain of steps that made a run last as long as it did.
func (a *App) CriticalPath(r Request, id string) ([]engine.Leg, error) {
	p, err := a.use(r, Observer{}).history()
	if err != nil {
		return nil, err
	}
	defer p.Close()
	run, err := p.run(id)
	if err != nil {
		return nil, err
	}
	graph, err := p.Graph(run)
	if err != nil {
		return nil, err
	}
	var all []engine.Event
	err = p.Events(run, 0, func(_ int64, ev engine.Event) error { all = append(all, ev); return nil })
	return engine.CriticalPath(graph, all), err
}

// touched tells of the hosts that recorded runs changed whether a later run has cleaned
// them. It has, too, where it was cut off in its last step there: a host that still has
// its record then is cleaned again by the next one.
func (p *records) touched() (cleaned map[string]bool, err error) {
	runs, err := p.Runs()
	cleaned = map[string]bool{}
	for _, r := range runs {
		if err != nil {
			break
		}
		err = p.Events(r, 0, func(_ int64, ev engine.Event) error {
			switch {
			case ev.Host == plan.Control || ev.Host == plan.API:
			case cleans(ev) && ev.Status != engine.Skipped:
				cleaned[ev.Host] = true
			case ev.Status == engine.Changed || ev.Status == engine.Failed:
				cleaned[ev.Host] = false
			}
			return nil
		})
	}
	return cleaned, err
}

// cleans reports whether an event is of the step that puts a host back to what it was.
func cleans(ev engine.Event) bool {
	return strings.HasSuffix(string(ev.Node), "/"+strings.ReplaceAll(cleanup.Restored{}.String(), " ", "-")+"@"+ev.Host)
}

// locked reports whether somebody works on the cluster.
func locked(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// filesBelow lists the files of a name in the directories of dir, sorted. A pattern would not do: the path
// of dir may look like one, and what cannot be read counts as empty there.
func filesBelow(dir, name string) (files []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		file := filepath.Join(dir, e.Name(), name)
		if _, err := os.Stat(file); !missing(err) {
			files = append(files, file)
		}
	}
	if missing(err) {
		err = nil
	}
	return files, err
}

// missing reports that there is no file, nor the directory that it would be in.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
