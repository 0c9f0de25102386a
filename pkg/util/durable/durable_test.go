package durable_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/util/durable"
)

// TestWriters lets many write one file at once: all do, and it is whole.
func TestWriters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "facts.json")
	var all errgroup.Group
	for i := range byte(20) {
		all.Go(func() error { return durable.Write(file, bytes.Repeat([]byte{'a' + i}, 50_000)) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || len(text) != 50_000 || len(bytes.Trim(text, string(text[:1]))) > 0 {
		t.Errorf("%d bytes of several writers, %v", len(text), err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	alone(t, file)
}

// TestCannot writes where a directory is: nothing is left behind.
func TestCannot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "there")
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.Write(file, nil); err == nil {
		t.Error("it went well")
	}
	alone(t, file)
}

func alone(t *testing.T, file string) {
	t.Helper()
	if beside, err := os.ReadDir(filepath.Dir(file)); err != nil || len(beside) != 1 {
		t.Errorf("beside it: %v, %v", beside, err)
	}
}
