package resource

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

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
