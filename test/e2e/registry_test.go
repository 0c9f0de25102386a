//go:build e2e

package e2e

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/test/testbed/mirror"
)

// A worker is the registry, too; nodes have no other place to pull from.
func TestRegistry(t *testing.T) {
	defer the.shrink(t)
	const name = "registry.kubexm.local"
	role := host(1, "roles", []any{"worker", "registry"})
	online := newCluster(t, 1, where{work: filepath.Join(the.dir, "registry-online")}, impatient, role)
	bundle := filepath.Join(the.dir, "registry.tar.zst")
	online.run(t, "download", "--export", bundle).ok(t)
	c := newCluster(t, 1, where{work: filepath.Join(the.dir, "registry")}, impatient, role, set("source.offline", true))
	if out, err := exec.CommandContext(t.Context(), the.program, "import", bundle, "--workdir", c.work).CombinedOutput(); err != nil {
		t.Fatalf("import: %v\n%s", err, out)
	}
	var asked atomic.Int64
	count := func(*http.Request) mirror.Fault {
		asked.Add(1)
		return mirror.Fault{}
	}
	the.fault.Store(&count)
	defer the.fault.Store(nil)
	t.Run("pulled", func(t *testing.T) {
		restoreMachines(t)
		before := the.snapshots(t)
		c.create(t).ok(t)
		ref := content(t, c)[0]
		for _, n := range the.nodes {
			for _, r := range []string{ref, name + "/" + ref} { // as manifests have it, and as it is called there
				the.on(t, n, "crictl rmi "+r+" >/dev/null 2>&1; crictl pull "+r)
			}
			if out, err := the.bed.SSH(t.Context(), n, "crictl pull registry.k8s.io/nothing:v1"); err == nil {
				t.Errorf("%s pulled what is nowhere: %s", n.Name, out)
			}
		}
		c.run(t, "registry", "push").ok(t)
		c.remove(t)
		asBefore(t, before)
		c.run(t, "registry", "list").fails(t, fault.ExitFailed, "there is no cluster")
	})
	t.Run("life", func(t *testing.T) { cycle(t, c) })
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests were made for what the bundle holds", n)
	}
}

// content lists what is in the private registry, by the names that images have elsewhere.
func content(t *testing.T, c *cluster) (refs []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), the.program, "registry", "list", "-f", c.file, "--workdir", c.work, "-o", "json").Output()
	if err != nil {
		t.Fatalf("registry list: %v", err)
	}
	var list struct {
		Images []struct{ Repository, Tag string }
	}
	if err := json.Unmarshal(out, &list); err != nil || len(list.Images) == 0 {
		t.Fatalf("registry list: %v\n%s", err, out)
	}
	for _, i := range list.Images {
		refs = append(refs, i.Repository+":"+i.Tag)
	}
	return refs
}
