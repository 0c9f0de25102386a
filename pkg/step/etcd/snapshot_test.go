package etcd_test

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step/etcd"
)

// TestNoSnapshot refuses an upgrade while no member of etcd is well, unless a run that was cut off has taken a snapshot.
func TestNoSnapshot(t *testing.T) {
	c := clustertest.Parse(t, clustertest.Masters, nil)
	c.Dir = t.TempDir()
	c.Observed.API = []cluster.APIServer{{Host: "node1", Version: "v1.36.4"}}
	look := func() error {
		change, err := etcd.NewSnapshot(c, plan.Control).Precheck(t.Context(), runnertest.Debian12("node1").Runner())
		if change != nil {
			t.Errorf("it would change %s", change.Diff)
		}
		return err
	}
	if err := look(); err == nil || !strings.Contains(err.Error(), "nothing is upgraded without a snapshot of etcd") {
		t.Errorf("without a member: %v", err)
	}
	data := make([]byte, 512)
	sum := sha256.Sum256(data)
	file := filepath.Join(c.Dir, "snapshots", "kubernetes-v1.36.4-etcd-v3.6.16.db")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, slices.Concat(data, sum[:]), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := look(); err != nil {
		t.Errorf("with the snapshot from before: %v", err)
	}
	c.Observed.Members = []cluster.EtcdMember{{Host: "node1", Version: "3.6.16", Err: "alarm"}}
	if err := look(); err == nil {
		t.Error("a snapshot of an earlier upgrade counts, and nothing has begun")
	}
}
