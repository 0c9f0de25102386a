package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// report is what a user sees of a file: what is in effect, warnings, errors.
func report(t *testing.T, path string) (text string, err error) {
	t.Helper()
	t.Setenv("KXZONE", "")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, warnings, err := Parse(filepath.Base(path), data)
	var b strings.Builder
	for _, w := range warnings {
		fmt.Fprintln(&b, "warning:", w)
	}
	if err != nil {
		fmt.Fprintln(&b, err)
		return b.String(), err
	}
	shown, showErr := Show(c)
	if showErr != nil {
		t.Fatal(showErr)
	}
	b.Write(shown)
	return b.String(), nil
}

// TestFiles shows for every rule what its author gets to read.
func TestFiles(t *testing.T) {
	for _, kind := range []string{"valid", "invalid"} {
		files, _ := filepath.Glob("testdata/" + kind + "/*.yaml")
		if len(files) == 0 {
			t.Fatalf("no %s files", kind)
		}
		for _, file := range files {
			t.Run(kind+"/"+strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
				text, err := report(t, file)
				if (err == nil) != (kind == "valid") {
					t.Errorf("this file must be %s; got:\n%s", kind, text)
				}
				if err != nil && fault.ExitCode(err) != fault.ExitUsage {
					t.Errorf("exit code %d, want %d", fault.ExitCode(err), fault.ExitUsage)
				}
				if strings.Contains(text, "hunter2") {
					t.Error("a secret is shown")
				}
				golden.File(t, strings.TrimSuffix(file, "yaml")+"txt", text)
			})
		}
	}
}
