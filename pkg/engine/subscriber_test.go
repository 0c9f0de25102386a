package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/engine"
)

// TestSubscriber has a queue of three, and what is put into it: a digit is an event, p one on progress, and
// "." is read.
func TestSubscriber(t *testing.T) {
	for name, c := range map[string]struct{ put, want string }{
		"in time":               {"1.2.p.3", "1 2 p 3"},
		"progress goes first":   {"1p2p3", "1 (missed 1) 2 (missed 1) 3"},
		"then the oldest":       {"1p2345", "(missed 3) 3 4 5"},
		"progress that is last": {"123p4", "(missed 1) 2 3 (missed 1) 4"},
		"read in between":       {"123.4.56", "1 2 (missed 1) 4 5 6"},
		"nothing":               {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := engine.NewSubscriber(3)
			var got []string
			read := func() bool {
				ev, ok := s.Next(t.Context())
				if ev.Missed > 0 {
					got = append(got, fmt.Sprintf("(missed %d)", ev.Missed))
				}
				if ok {
					got = append(got, ev.What)
				}
				return ok
			}
			for _, what := range c.put {
				status := engine.OK
				switch what {
				case '.':
					read()
					continue
				case 'p':
					status = engine.Progress
				}
				s.Put(engine.Event{What: string(what), Status: status})
			}
			s.Close()
			s.Put(engine.Event{What: "late"})
			for read() {
			}
			if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSlowSubscriber has a reader that takes an hour for each event: the run does not wait for it.
func TestSlowSubscriber(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := engine.NewSubscriber(2)
		read := make(chan int)
		go func() {
			n, last := 0, int64(0)
			for ev, ok := s.Next(t.Context()); ok; ev, ok = s.Next(t.Context()) {
				if n += 1 + ev.Missed; ev.Seq != last+1+int64(ev.Missed) {
					t.Errorf("event %d with %d missed comes after %d", ev.Seq, ev.Missed, last)
				}
				last = ev.Seq
				time.Sleep(time.Hour)
			}
			read <- n
		}()
		e := engine.Engine{Sink: s.Put}
		begin := time.Now()
		e.Hosts = anyHost
		if _, err := e.Run(t.Context(), planned(t, task("t", []string{"a", "b", "c"}, act{Name: "x", Run: takes(time.Second)}, act{Name: "y"}))); err != nil || time.Since(begin) != time.Second {
			t.Errorf("took %s: %v", time.Since(begin), err)
		}
		s.Close()
		if n := <-read; n != 12 {
			t.Errorf("%d events were read or missed", n)
		}
	})
}
