package engine

import (
	"context"
	"slices"
	"sync"
)

// Subscriber is a reader of events that may be slower than the run: it gets them from a bounded queue, in
// order. Where it is too slow, Progress events are left out first, then the oldest of the others, and
// Event.Missed of the next one says how many. The record of a run gets every event: its sink is called before.
type Subscriber struct {
	size   int
	mu     sync.Mutex
	queue  []Event
	told   int // events on progress in queue
	missed int // were left out after the last of queue
	more   chan struct{}
	closed bool
}

// NewSubscriber returns a reader that may be up to size events behind, at least one.
func NewSubscriber(size int) *Subscriber {
	return &Subscriber{size: max(1, size), more: make(chan struct{}, 1)}
}

// Put passes an event on. It never waits.
func (s *Subscriber) Put(ev Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	ev.Missed, s.missed = s.missed, 0
	s.queue = append(s.queue, ev)
	if ev.Status == Progress {
		s.told++
	}
	if len(s.queue) > s.size {
		s.drop()
	}
	s.wake()
}

// drop leaves one event out.
func (s *Subscriber) drop() {
	at := 0
	if s.told > 0 {
		at = slices.IndexFunc(s.queue, func(ev Event) bool { return ev.Status == Progress })
		s.told--
	}
	missed := s.queue[at].Missed + 1
	if at == 0 {
		s.queue = s.queue[1:]
	} else {
		s.queue = slices.Delete(s.queue, at, at+1)
	}
	if at < len(s.queue) {
		s.queue[at].Missed += missed
	} else {
		s.missed += missed
	}
}

// Next returns the next event, and false when there is none any more or the context ends. One
// goroutine may call it at a time.
func (s *Subscriber) Next(ctx context.Context) (Event, bool) {
	for {
		ev, ok, closed := s.take()
		if ok || closed {
			return ev, ok
		}
		select {
		case <-ctx.Done():
			return Event{}, false
		case <-s.more:
		}
	}
}

func (s *Subscriber) take() (ev Event, ok, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return ev, false, s.closed
	}
	ev, s.queue = s.queue[0], s.queue[1:]
	if ev.Status == Progress {
		s.told--
	}
	return ev, true, false
}

// Close ends the events: Next returns those that are left.
func (s *Subscriber) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wake()
}

func (s *Subscriber) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}
