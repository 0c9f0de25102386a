package runner

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestFacts reads what the script printed on machines of several distributions.
func TestFacts(t *testing.T) {
	outputs, err := filepath.Glob("testdata/TestFacts/*.txt")
	if err != nil || len(outputs) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	for _, name := range outputs {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			out, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(parseFacts(string(out)), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden.File(t, strings.TrimSuffix(name, ".txt")+".json", string(got)+"\n")
		})
	}
}

// TestFactsOfNothing has a script whose commands all failed.
func TestFactsOfNothing(t *testing.T) {
	for _, out := range []string{"", "\n@os\n\n@disks\n/ \n@listening\nx\n@caps\n@mem\nMemTotal:\n@addresses\n1: lo\n"} {
		f := parseFacts(out)
		if f.OS != "" || f.CPUs != 0 || len(f.Disks)+len(f.Interfaces)+len(f.Listening) > 0 || f.CanRaiseLimits() || f.Is("debian") {
			t.Errorf("out of nothing: %+v", f)
		}
	}
}

func TestIs(t *testing.T) {
	rocky := &Facts{OS: "rocky", OSLike: []string{"rhel", "centos", "fedora"}}
	if !rocky.Is("debian", "rhel") || !rocky.Is("rocky") || rocky.Is("debian") {
		t.Error("Rocky Linux is like RHEL, and not like Debian")
	}
}
