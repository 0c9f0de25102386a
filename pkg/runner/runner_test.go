package runner_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

func TestQuote(t *testing.T) {
	r := runnertest.Debian12("node1").Runner()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOf(rapid.RuneFrom([]rune("ab $`'\"\\\n\t*?~#&;|<>()[]{}!=%äß-"))).Draw(t, "word")
		out, err := r.Sh(t.Context(), `printf '%s|' `+runner.Quote(word, "end"))
		if err != nil || out != word+"|end|" {
			t.Errorf("%q became %q: %v", word, out, err)
		}
	})
}

func TestQuoteOnRealShells(t *testing.T) {
	words := []string{"", "plain", "it's", `\`, `a "b" $c`, "`d`", "*", "~", "-n", "new\nline", "!x", "äöü", "a=b"}
	onEach(t, func(t *testing.T, _ machine, r *runner.Runner) {
		out, err := r.Sh(t.Context(), `for w in `+runner.Quote(words...)+`; do printf '%s|' "$w"; done`)
		must(t, err)
		want := ""
		for _, w := range words {
			want += w + "|"
		}
		if out != want {
			t.Errorf("got %q, want %q", out, want)
		}
	})
}

func TestMemo(t *testing.T) {
	r := runnertest.Debian12("node1").Runner()
	made := 0
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if n, err := runner.Memo(r, "one", func() (int, error) { made++; return 7, nil }); n != 7 || err != nil {
				t.Errorf("got %d, %v", n, err)
			}
		})
	}
	wg.Wait()
	if made != 1 {
		t.Errorf("made %d times", made)
	}
	if _, err := runner.Memo(r, "one", func() (string, error) { return "", nil }); err == nil {
		t.Error("one key held two types")
	}
	fault := errors.New("no")
	if _, err := runner.Memo(r, "two", func() (int, error) { return 0, fault }); !errors.Is(err, fault) {
		t.Errorf("got %v", err)
	}
	if n, err := runner.Memo(r, "two", func() (int, error) { return 2, nil }); n != 2 || err != nil {
		t.Errorf("an error was kept: got %d, %v", n, err)
	}
}

func TestRoundTripsAndUser(t *testing.T) {
	h := runnertest.Debian12("node1")
	r := h.Runner()
	out, err := r.User(t.Context(), "printf 'as it is\n'; cat", strings.NewReader("\n"))
	must(t, err)
	if out != "as it is\n\n" {
		t.Errorf("got %q", out)
	}
	if out, err = r.Run(t.Context(), "printf", "%s\n\n", "a b"); err != nil || out != "a b" {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := r.Dial(t.Context(), "tcp", "10.0.0.1:1"); err == nil {
		t.Error("nothing listens there")
	}
	if r.RoundTrips() != 3 || h.Execs() != 2 {
		t.Errorf("%d round trips, %d scripts", r.RoundTrips(), h.Execs())
	}
}

// TestMuchOutput has a command that prints without end, and one that fails with terminal escapes.
func TestMuchOutput(t *testing.T) {
	r := runner.New("here", connector.Local())
	defer r.Close()
	if _, err := r.User(t.Context(), "cat /dev/zero", nil); err == nil || !strings.Contains(err.Error(), "longer than 64 MiB") || fault.Advice(err) == "" {
		t.Errorf("without end: %v", err)
	}
	if out, err := r.User(t.Context(), "head -c 1000000 /dev/zero", nil); err != nil || len(out) != 1000000 {
		t.Errorf("much: %d bytes, %v", len(out), err)
	}
	if _, err := r.User(t.Context(), `printf '\033[2J\033]0;x\007gone' >&2; exit 1`, nil); err == nil || !strings.HasSuffix(err.Error(), "status 1: gone") {
		t.Errorf("escapes: %q", err)
	}
}
