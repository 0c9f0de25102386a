package store_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/engine"
)

// disk is where events go.
type disk struct {
	mu      sync.Mutex
	full    error
	written []string
}

func (d *disk) Append(_ store.Run, events []engine.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full != nil {
		return d.full
	}
	for _, ev := range events {
		d.written = append(d.written, ev.What)
	}
	return nil
}

func (d *disk) set(full error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

// TestJournal adds events: what changed something is written at once, the rest within 200 ms, all in order; progress is
// left out. On a full disk they wait until there is space.
func TestJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		j := store.NewJournal(d, store.Run{})
		add := func(what string, status engine.Status) { j.Add(engine.Event{What: what, Status: status}) }
		written := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			d.mu.Lock()
			defer d.mu.Unlock()
			if diff := cmp.Diff(want, d.written); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
			d.written = nil
		}
		add("a", engine.Started)
		add("b", engine.Progress)
		time.Sleep(199 * time.Millisecond)
		add("c", engine.Started)
		written("before 200 ms")
		time.Sleep(time.Millisecond)
		written("after 200 ms", "a", "c")
		add("d", engine.Started)
		add("e", engine.Changed)
		written("at once", "d", "e")

		d.set(errors.New("full"))
		add("f", engine.Changed)
		add("g", engine.Started)
		time.Sleep(time.Second)
		d.set(nil)
		add("h", engine.Started)
		time.Sleep(200 * time.Millisecond)
		written("when there is space again", "f", "g", "h")
		add("i", engine.Started)
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		written("at the end", "i")

		d.set(errors.New("full"))
		j = store.NewJournal(d, store.Run{})
		add("j", engine.Changed)
		if err := j.Close(); err != d.full {
			t.Errorf("closed on a full disk: %v", err)
		}
	})
}

func TestMain(m *testing.M) {
	if dir := os.Getenv("STORE_TEST_DIR"); dir != "" {
		worker(dir)
	}
	os.Exit(m.Run())
}

// worker ends a run, and writes the events of another until it is killed. It prints what it has done.
func worker(dir string) {
	check := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	st, err := store.Open(dir, store.Options{Create: true})
	check(err)
	for n := 0; ; n++ {
		r, err := st.Begin(run(time.Now(), "create"), nil, nil)
		check(err)
		j := store.NewJournal(st, r)
		for i := 0; n == 1 || i < 20; i++ {
			status := engine.Started
			if i%10 == 9 {
				status = engine.Changed
			}
			j.Add(engine.Event{What: fmt.Sprint(i + 1), Status: status})
			fmt.Println(r.Seq, i+1)
			time.Sleep(time.Millisecond)
		}
		check(j.Close())
		r.Result = "ok"
		check(st.End(r))
		fmt.Println("ended", r.Seq)
	}
}

// TestKilled kills a process that writes: what it was told to be done is, and events are missing at the end only.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "STORE_TEST_DIR="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	added := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if n := 0; lines.Text() != "ended 1" {
			if _, err := fmt.Sscanf(lines.Text(), "2 %d", &n); err == nil {
				added = n
			}
		}
		switch added {
		case 150: // another process reads meanwhile
			st, err := store.Open(dir, store.Options{})
			must(t, err)
			runs, err := st.Runs()
			if err != nil || len(runs) != 2 || len(texts(t, st, runs[1], 0)) == 0 {
				t.Errorf("read meanwhile: %+v, %v", runs, err)
			}
			must(t, st.Close())
		case 305:
			must(t, cmd.Process.Kill())
		}
	}
	_ = cmd.Wait()
	st := open(t, dir)
	runs, err := st.Runs()
	must(t, err)
	if len(runs) != 2 || runs[0].Result != "ok" || runs[1].Result != "" {
		t.Fatalf("runs: %+v", runs)
	}
	if n := len(texts(t, st, runs[0], 0)); n != 20 {
		t.Errorf("%d events of the run that has ended", n)
	}
	kept := len(texts(t, st, runs[1], 0))
	if kept < 20 {
		t.Errorf("%d of %d events are kept", kept, added)
	}
	t.Logf("of %d events, one a millisecond, %d are kept", added, kept)
}

// BenchmarkAppend writes events as a run does.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			st, err := store.Open(b.TempDir(), store.Options{Create: true})
			must(b, err)
			defer st.Close()
			r, err := st.Begin(run(time.Now(), "create"), nil, nil)
			must(b, err)
			some := numbered(n)
			for b.Loop() {
				must(b, st.Append(r, some))
			}
		})
	}
}

// BenchmarkOpen opens a store and closes it, as every command does.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		st, err := store.Open(dir, store.Options{Create: true})
		must(b, err)
		must(b, st.Close())
	}
}
