package store

import (
	"sync"
	"time"

	"github.com/kubexm/kubexm/pkg/engine"
)

// flushAfter is how long an event waits at most before it is written.
const flushAfter = 200 * time.Millisecond

// Journal writes the events of a run behind the back of who makes them: what changed a host at once, the rest together
// after flushAfter. What cannot be written, as on a full disk, is kept and tried again with what follows. A killed
// process takes the events with it that came since the last write.
type Journal struct {
	to  appender
	run Run

	mu      sync.Mutex
	waiting []engine.Event
	wake    chan bool // true: at once
	done    chan struct{}
	err     error // of the last write
}

// appender is the part of Runs that a journal needs.
type appender interface {
	Append(run Run, events []engine.Event) error
}

// NewJournal begins the journal of a run. It must be closed.
func NewJournal(to appender, run Run) *Journal {
	j := &Journal{to: to, run: run, wake: make(chan bool, 1), done: make(chan struct{})}
	go j.loop()
	return j
}

// Add takes an event. It does not wait for the disk. Progress is nothing that is kept.
func (j *Journal) Add(ev engine.Event) {
	if ev.Status == engine.Progress {
		return
	}
	j.mu.Lock()
	j.waiting = append(j.waiting, ev)
	j.mu.Unlock()
	switch ev.Status {
	case engine.Changed, engine.Failed, engine.Restored:
		select {
		case <-j.wake: // that there is more to come later
		default:
		}
		j.wake <- true
	default:
		select {
		case j.wake <- false:
		default:
		}
	}
}

// Close writes what is left, and returns why that is not possible. The journal must not be used any more.
func (j *Journal) Close() error {
	close(j.wake)
	<-j.done
	return j.err
}

func (j *Journal) loop() {
	defer close(j.done)
	for now := range j.wake {
		if !now {
			j.linger()
		}
		j.flush()
	}
	j.flush()
}

// linger waits until what has come is to be written.
func (j *Journal) linger() {
	late := time.NewTimer(flushAfter)
	defer late.Stop()
	for {
		select {
		case <-late.C:
			return
		case now, open := <-j.wake:
			if now || !open {
				return
			}
		}
	}
}

func (j *Journal) flush() {
	j.mu.Lock()
	some := j.waiting
	j.mu.Unlock()
	if len(some) == 0 {
		return
	}
	if j.err = j.to.Append(j.run, some); j.err != nil {
		return
	}
	j.mu.Lock()
	j.waiting = j.waiting[len(some):]
	j.mu.Unlock()
}
