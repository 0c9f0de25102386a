package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/config"
)

const (
	lock = `{"files": {"kubelet/1.37.1/amd64/kubelet": {"sha256": "aa", "from": "https://dl.k8s.io/x.sha256", "signature": "s"}},
"images": {"registry.k8s.io/pause:3.10": {"digest": "sha256:bb", "manifests": {"amd64": {"digest": "sha256:cc", "size": 3}}}}, "systems": {"debian12": {}}}`
	kept = `{
  "files": {
    "crictl/1.35.0/amd64/crictl": {
      "sha256": "dd",
      "from": "https://example.com/sums"
    },
    "kubelet/1.37.1/amd64/kubelet": {
      "sha256": "aa",
      "from": "https://dl.k8s.io/x.sha256"
    }
  },
  "images": {
    "registry.k8s.io/pause:3.10": {
      "digest": "sha256:bb",
      "manifests": {
        "amd64": {
          "digest": "sha256:cc",
          "size": 3
        }
      }
    }
  }
}
`
)

func TestMerge(t *testing.T) {
	old := `{"files": {"crictl/1.35.0/amd64/crictl": {"sha256": "dd", "from": "https://example.com/sums"}}}`
	for range 2 { // the second time there is nothing new
		got, err := merge([]byte(old), []byte(lock))
		if err != nil || string(got) != kept {
			t.Fatalf("%v\n%s", err, got)
		}
		old = string(got)
	}
	for from, want := range map[string]string{`"sha256": "aa"`: "kubelet/1.37.1/amd64/kubelet", `"digest": "sha256:bb"`: "registry.k8s.io/pause:3.10"} {
		if _, err := merge([]byte(strings.Replace(kept, from, from[:len(from)-3]+`ff"`, 1)), []byte(lock)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("another %s: %v", want, err)
		}
	}
}

// TestPinned has merge read the file itself.
func TestPinned(t *testing.T) {
	old, err := os.ReadFile("../../" + pinned)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := merge(old, []byte("{}")); err != nil || string(got) != string(old) {
		t.Errorf("%v: it would be written anew without need", err)
	}
}

func TestTested(t *testing.T) {
	if all := tested(); len(all) < 4 || all[0] != config.DefaultKubernetes() || !slices.Contains(all, "v1.36.4") {
		t.Errorf("%q", all)
	}
}
