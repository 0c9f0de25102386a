package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step/cleanup"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// clusterDir is the directory of the cluster that is named, or described in the file.
func (o *Options) clusterDir() (string, error) {
	name := o.Name
	if name == "" {
		_, conf, err := Config(o)
		if err != nil {
			return "", err
		}
		name = conf.Metadata.Name
	}
	return filepath.Join(o.Workdir, name), nil
}

// Runs lists the recorded runs of a cluster, oldest first.
func Runs(o *Options) ([]Run, error) {
	dir, err := o.clusterDir()
	if err != nil {
		return nil, err
	}
	return runsIn(dir)
}

// runsIn reads the records in a cluster's directory. A run without an end is
// "running" when it is the last one and somebody works on the cluster, else "cut off".
func runsIn(dir string) ([]Run, error) {
	files, err := filesBelow(filepath.Join(dir, "runs"), "run.json")
	if err != nil {
		return nil, fmt.Errorf("listing runs: %w", err)
	}
	runs := make([]Run, len(files))
	for i, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", f, err)
		}
		if json.Unmarshal(data, &runs[i]) != nil { // a power cut took it
			runs[i] = named(filepath.Base(filepath.Dir(f)))
		}
		switch {
		case runs[i].Result != "":
		case i == len(files)-1 && locked(dir):
			runs[i].Result = "running"
		default:
			runs[i].Result = "cut off"
		}
	}
	return runs, nil
}

// filesBelow lists the files of a name in the directories of dir, sorted. A pattern would not do: the path
// of dir may look like one, and what cannot be read counts as empty there.
func filesBelow(dir, name string) (files []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		file := filepath.Join(dir, e.Name(), name)
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			files = append(files, file)
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = nil
	}
	return files, err
}

// named is what the name of a run tells of it.
func named(id string) Run {
	begun, pipe, _ := strings.Cut(id, "-")
	started, _ := time.Parse(stamp, begun) // of a directory that no run has made: not known
	return Run{ID: id, Pipeline: pipe, Started: started}
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

// Events reads the events of a run, of the last one when id is empty. With
// follow it goes on until the run or ctx ends.
func Events(ctx context.Context, o *Options, id string, follow bool, each func(engine.Event) error) error {
	dir, err := o.clusterDir()
	if err != nil {
		return err
	}
	if id == "" {
		runs, err := runsIn(dir)
		if err != nil {
			return err
		}
		if len(runs) == 0 {
			return fault.Exit(fault.Advise(fmt.Errorf("nothing was run yet: no run is recorded in %s", dir),
				"make the cluster with: kubexm create cluster"+o.Which()+"; or name the --workdir that it was made in"), fault.ExitUsage)
		}
		id = runs[len(runs)-1].ID
	}
	f, err := os.Open(filepath.Join(dir, "runs", id, "events.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Exit(fault.Advise(fmt.Errorf("no run %s is recorded in %s", id, dir), "list runs with: kubexm runs"+o.Which()), fault.ExitUsage)
	}
	if err != nil {
		return fmt.Errorf("reading events: %w", err)
	}
	defer f.Close()
	for from, part := bufio.NewReader(f), []byte(nil); ; {
		live := follow && isRunning(dir, id) // asked before reading on, so that the last events are read
		if part, err = events(from, part, each); err != nil || !live {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// CriticalPath returns the chain of steps that made a run last as long as it did, from the
// record in dir.
func CriticalPath(dir string) ([]engine.Leg, error) {
	text, err := os.ReadFile(filepath.Join(dir, "graph.json"))
	if err != nil {
		return nil, fmt.Errorf("reading the plan of a run: %w", err)
	}
	var graph plan.ExecutionGraph
	if err := json.Unmarshal(text, &graph); err != nil {
		return nil, fmt.Errorf("reading the plan of a run: %w", err)
	}
	f, err := os.Open(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("reading events: %w", err)
	}
	defer f.Close()
	var all []engine.Event
	_, err = events(bufio.NewReader(f), nil, func(ev engine.Event) error { all = append(all, ev); return nil })
	return engine.CriticalPath(&graph, all), err
}

// touched tells of the hosts that recorded runs changed whether a later run has cleaned
// them. It has, too, where it was cut off in its last step there: a host that still has
// its record then is cleaned again by the next one.
func touched(dir string) (cleaned map[string]bool, err error) {
	runs, err := runsIn(dir)
	if err != nil {
		return nil, err
	}
	cleaned = map[string]bool{}
	for _, r := range runs {
		f, err := os.Open(filepath.Join(dir, "runs", r.ID, "events.jsonl"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // cut off before it began
		}
		if err != nil {
			return nil, fmt.Errorf("reading events: %w", err)
		}
		_, err = events(bufio.NewReader(f), nil, func(ev engine.Event) error {
			switch {
			case ev.Host == plan.Control || ev.Host == plan.API:
			case r.Pipeline == "delete" && ev.What == (cleanup.Restored{}).String() && ev.Status != engine.Skipped:
				cleaned[ev.Host] = true
			case ev.Status == engine.Changed || ev.Status == engine.Failed:
				cleaned[ev.Host] = false
			}
			return nil
		})
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return cleaned, nil
}

// events calls each for the events that are there, and returns the begin of one
// that is being written. The begin that an earlier call returned comes before.
func events(from *bufio.Reader, begun []byte, each func(engine.Event) error) ([]byte, error) {
	for {
		part, err := from.ReadBytes('\n')
		begun = append(begun, part...)
		if errors.Is(err, io.EOF) {
			return begun, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading events: %w", err)
		}
		var ev engine.Event
		broken := json.Unmarshal(begun, &ev) // by a crash
		begun = begun[:0]
		if broken != nil {
			continue
		}
		if err := each(ev); err != nil {
			return nil, err
		}
	}
}

func isRunning(dir, id string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "runs", id, "run.json"))
	return err == nil && !bytes.Contains(data, []byte(`"ended"`)) && locked(dir)
}
