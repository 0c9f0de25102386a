package step_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
)

// published returns an empty store, and an artifact that its source gives.
func published(t *testing.T, text string) (*resource.Store, resource.Artifact) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
	t.Cleanup(srv.Close)
	store, err := resource.Open(t.TempDir(), source.Config{Mirrors: map[string]string{"https://github.com/": srv.URL + "/"}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := resource.New("runc", "1.5.1", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	a.SHA256 = fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	return store, a
}

func TestFetchAndUpload(t *testing.T) {
	store, a := published(t, strings.Repeat("runc", 100_000))
	fetch := step.Fetch{Artifact: a, Store: store}
	upload := step.Upload{What: "runtime", Store: store, Programs: []step.Programs{{Artifact: a, Dir: "/usr/local/bin"}, {Artifact: a, Dir: "/opt/none", Names: []string{"other"}}}}
	h := hostFor(nil)
	if _, err := upload.Precheck(t.Context(), h.Runner()); err == nil || !strings.Contains(err.Error(), "runc 1.5.1 amd64 is not in ") {
		t.Errorf("uploads what is not there: %v", err)
	}
	if c := check(t, h, fetch); c == nil || c.Diff != "+ runc 1.5.1 amd64" {
		t.Errorf("got %+v", c)
	}
	for _, s := range []step.Step{fetch, upload} {
		if err := apply(t, h, s); err != nil {
			t.Fatal(err)
		}
		if c := check(t, h, s); c != nil {
			t.Errorf("there is something to do:\n%s", c.Diff)
		}
	}
	if text, _ := h.Get("/usr/local/bin/runc"); len(text) != 400_000 || h.Mode("/usr/local/bin/runc") != 0o755 || h.Mode("/opt/none") != 0 {
		t.Errorf("%d bytes, mode %v", len(text), h.Mode("/usr/local/bin/runc"))
	}
	spec, err := json.Marshal(upload)
	if err != nil || !strings.Contains(string(spec), a.SHA256) || strings.Contains(string(spec), os.TempDir()) {
		t.Errorf("the plan holds %s: %v", spec, err)
	}
	trips := h.Runner()
	if _, err := upload.Precheck(t.Context(), trips); err != nil || trips.RoundTrips() != 1 {
		t.Errorf("looked in %d round trips: %v", trips.RoundTrips(), err)
	}
}

func TestUploadOverAnOlderProgram(t *testing.T) {
	store, a := published(t, "new")
	upload := step.Upload{What: "runtime", Store: store, Programs: []step.Programs{{Artifact: a, Dir: "/usr/local/bin"}}}
	if err := apply(t, hostFor(nil), step.Fetch{Artifact: a, Store: store}); err != nil {
		t.Fatal(err)
	}
	for n := int64(1); ; n++ { // cut the power before each command
		h := hostFor(func(h *runnertest.Host) { h.Put("/usr/local/bin/runc", "old", 0o755) })
		before := h.Snapshot()
		cut := &runnertest.Kill{After: n}
		h.Cut = cut
		_ = apply(t, h, upload)
		h.Reboot()
		if text, _ := h.Get("/usr/local/bin/runc"); text != "old" && text != "new" {
			t.Fatalf("power cut before command %d: the program is %q", n, text)
		}
		if err := apply(t, h, upload); err != nil {
			t.Fatalf("power cut before command %d: %v", n, err)
		}
		if text, _ := h.Get("/usr/local/bin/runc"); text != "new" || check(t, h, upload) != nil {
			t.Fatalf("power cut before command %d: the program is %q", n, text)
		}
		if err := h.Runner().Restore(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if h.Snapshot() != before {
			t.Fatalf("power cut before command %d: after Restore the host is\n%s", n, h.Snapshot())
		}
		if cut.Count() <= n {
			return
		}
	}
}

// listening counts the bytes that commands read.
type listening struct {
	connector.Connector
	heard int
}

func (l *listening) Exec(ctx context.Context, c connector.Cmd) error {
	if c.Stdin != nil {
		c.Stdin = io.TeeReader(c.Stdin, l)
	}
	return l.Connector.Exec(ctx, c)
}

func (l *listening) Write(p []byte) (int, error) {
	l.heard += len(p)
	return len(p), nil
}

func TestUploadGoesOnInTheMiddle(t *testing.T) {
	text := strings.Repeat("0123456789", 1<<18)
	store, a := published(t, text)
	if err := apply(t, hostFor(nil), step.Fetch{Artifact: a, Store: store}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		part, diff string
		sent       int
	}{
		"half of it":         {text[:2<<20], ", 2 MB of an upload are there", len(text) - 2<<20},
		"all of it":          {text, ", 2 MB of an upload are there", 0},
		"another's half":     {"x" + text[:1<<20], ", 1 MB of an upload are there", len(text)},
		"more than there is": {text + "x", ", 2 MB of an upload are there", len(text)},
		"nothing":            {"", "", len(text)},
	} {
		h := hostFor(func(h *runnertest.Host) { h.Put("/opt/.runc.kubexm.4711", c.part, 0o644) })
		conn := &listening{Connector: h}
		got, err := step.Upload{What: "x", Store: store, Programs: []step.Programs{{Artifact: a, Dir: "/opt"}}}.Precheck(t.Context(), runner.New("node1", conn))
		if err != nil || got.Diff != "+ /opt/runc (2 MB"+c.diff+")\n" {
			t.Fatalf("%s: %q, %v", name, got.Diff, err)
		}
		if err := got.Run(t.Context()); err != nil || conn.heard != c.sent {
			t.Errorf("%s: sent %d bytes, want %d: %v", name, conn.heard, c.sent, err)
		}
		if now, _ := h.Get("/opt/runc"); now != text || h.Mode("/opt/.runc.kubexm.4711") != 0 {
			t.Errorf("%s: %d bytes are there", name, len(now))
		}
	}
}

func TestUploadRollsBack(t *testing.T) {
	store, a := published(t, "new")
	h := hostFor(func(h *runnertest.Host) { h.Put("/opt/a/runc", "old", 0o755) })
	if err := apply(t, h, step.Fetch{Artifact: a, Store: store}); err != nil {
		t.Fatal(err)
	}
	c := check(t, h, step.Upload{What: "x", Store: store, Programs: []step.Programs{{Artifact: a, Dir: "/opt/a"}, {Artifact: a, Dir: "/opt/b"}}})
	if c.Diff != "+ /opt/a/runc (0 MB)\n+ /opt/b/runc (0 MB)\n" {
		t.Errorf("got %q", c.Diff)
	}
	if err := errors.Join(c.Run(t.Context()), c.Rollback(t.Context())); err != nil {
		t.Fatal(err)
	}
	if text, _ := h.Get("/opt/a/runc"); text != "old" || h.Mode("/opt/a/runc") != 0o755 || h.Mode("/opt/b/runc") != 0 {
		t.Errorf("is not as before: %q %s", text, h.Mode("/opt/a/runc"))
	}
	undone := errors.New("cut")
	c = check(t, h, step.Upload{What: "x", Store: store, Programs: []step.Programs{{Artifact: a, Dir: "/opt/a"}}})
	h.Fail("take", undone)
	if err := c.Run(t.Context()); !errors.Is(err, undone) {
		t.Errorf("got %v", err)
	}
	h.Deny = nil
	if err := c.Rollback(t.Context()); err != nil { // nothing was replaced
		t.Error(err)
	}
}

func TestUploadOntoAFullDisk(t *testing.T) {
	store, a := published(t, "new")
	h := hostFor(nil)
	if err := apply(t, h, step.Fetch{Artifact: a, Store: store}); err != nil {
		t.Fatal(err)
	}
	h.SetFull(true)
	upload := step.Upload{What: "x", Store: store, Programs: []step.Programs{{Artifact: a, Dir: "/opt"}}}
	if err := apply(t, h, upload); err == nil || !strings.Contains(err.Error(), "no space: /opt has 0 KiB free, 1 KiB are needed") {
		t.Errorf("got %v", err)
	}
	h.SetFull(false)
	if err := apply(t, h, upload); err != nil {
		t.Error(err)
	}
}

func TestUploadOfADamagedStore(t *testing.T) {
	store, a := published(t, "good")
	h := hostFor(nil)
	fetch := step.Fetch{Artifact: a, Store: store}
	if err := apply(t, h, fetch); err != nil {
		t.Fatal(err)
	}
	members, err := store.Programs(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	file := members[0].Path
	upload := step.Upload{What: "x", Store: store, Programs: []step.Programs{{Artifact: a, Dir: "/opt"}}}
	c := check(t, h, upload)
	if err := os.WriteFile(file, []byte("evil"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "checksum of /opt/runc on the host is") || h.Mode("/opt/runc") != 0 {
		t.Errorf("got %v, %s", err, filepath.Base(file))
	}
}
