package etcd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/etcd"
)

// TestSnapshot takes a snapshot, which only its owner may read, and tells one that was damaged or cut off.
func TestSnapshot(t *testing.T) {
	c := newThree(t)
	path := filepath.Join(t.TempDir(), "snapshots", "one.db")
	size, err := c.at(t, "https://10.0.0.1:2379").Snapshot(t.Context(), path)
	if err != nil || size != 512+32 {
		t.Fatalf("%d bytes, %v", size, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != size {
		t.Fatalf("%v, %v", info, err)
	}
	if err := etcd.Whole(path); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for want, spoiled := range map[string][]byte{"was cut off": text[:600-88], "is not that of its content": append([]byte{1}, text[1:]...)} {
		if err := os.WriteFile(path, spoiled, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := etcd.Whole(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
}
