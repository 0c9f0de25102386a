package resource

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

var update = flag.Bool("update", false, "write the golden files")

// TestMain runs the tests, or in a child process of a test its part in it.
func TestMain(m *testing.M) {
	if role := os.Getenv("KUBEXM_TEST_CHILD"); role != "" {
		if err := child(role, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// golden compares a text with testdata/<name of the test>.
func golden(t *testing.T, got string) {
	t.Helper()
	file := filepath.Join("testdata", t.Name())
	if *update {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", file, got, want)
	}
}

// told is what a user is told of an error, with names in the place of what changes from run to run.
func told(err error, names ...string) string {
	return strings.NewReplacer(names...).Replace(fmt.Sprintf("error: %v\nadvice: %s\n", err, fault.Advice(err)))
}

func mustNew(t testing.TB, component, version string) Artifact {
	t.Helper()
	a, err := New(component, version, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func mustFetch(t testing.TB, s *Store, a Artifact, want []byte) {
	t.Helper()
	path, err := s.Fetch(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s is not what was published (%d bytes of %d, %v)", path, len(got), len(want), err)
	}
}

// nothingLeft checks that nothing half-done is in the store.
func nothingLeft(t testing.TB, s *Store) {
	t.Helper()
	err := filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, ".part") {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func newCancel(t *testing.T) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, cancel
}
