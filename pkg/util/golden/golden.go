// Package golden compares what tests produce with files that somebody has read and
// approved. `go test PACKAGE -update` writes the files again, to be read in the diff.
package golden

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update is the flag -update: files are to be written as they now come out.
var Update = flag.Bool("update", false, "write the golden and generated files")

// Equal compares a text with the file testdata/<name of the test>, or with a file of
// the given name in that folder.
func Equal(t testing.TB, got string, name ...string) {
	t.Helper()
	File(t, filepath.Join("testdata", t.Name(), filepath.Join(name...)), got)
}

// File compares a text with a file.
func File(t testing.TB, file, got string) {
	t.Helper()
	if *Update {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; -update writes it", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s is not what comes out (-file +now); -update writes it:\n%s", file, diff)
	}
}
