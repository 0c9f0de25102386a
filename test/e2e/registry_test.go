//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/test/testbed/build"
)

// TestRegistry has a worker be the private registry, with the cable cut: nodes have no other place to pull from.
func TestRegistry(t *testing.T) {
	const name = "registry.kubexm.local"
	must(t, the.builder.Build(t.Context(), []build.Component{find(t, "registry")}))
	role := host(1, "roles", []any{"worker", "registry"})
	bundle := filepath.Join(the.dir, "registry.tar.zst")
	newCluster(t, 1, where{work: filepath.Join(the.dir, "registry-online")}, impatient, role).
		run(t, "download", "--os", "debian12,debian13", "--export", bundle).ok(t)
	must(t, the.bed.Isolate(t.Context()))
	defer func() { must(t, the.bed.Release(t.Context())) }()
	c := newCluster(t, 1, where{work: filepath.Join(the.dir, "registry")}, impatient, role, set("source.offline", true),
		set("dns.coredns.upstream", []any{the.nodes[1].Address}))
	c.isolated = true
	c.run(t, "import", bundle).ok(t)
	c.built = true
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
		nodesOnlyPull(t, name)
		c.run(t, "registry", "push").ok(t)
		c.remove(t)
		asBefore(t, before)
		c.run(t, "registry", "list").fails(t, fault.ExitUsage, "there is no cluster")
	})
	cycle(t, c)
	switch n, err := the.bed.Tried(t.Context()); {
	case err != nil:
		t.Error(err)
	case n > 0:
		t.Errorf("%d packets wanted out", n)
	}
}

// nodesOnlyPull tries to push to the registry from a node, with what that has.
func nodesOnlyPull(t *testing.T, name string) {
	t.Helper()
	push := "auth=$(" + runtimes[runtime(t).Name].login + `)
curl -sk -H "Authorization: $auth" -o /dev/null -w '%%{http_code} ' https://%[1]s/v2/
curl -sk -H "Authorization: $auth" -o /dev/null -w '%%{http_code} ' -X POST https://%[1]s/v2/mine/blobs/uploads/
curl -sk -o /dev/null -w '%%{http_code}' --connect-timeout 3 https://%[1]s:5001/v2/ || :`
	if got := the.on(t, the.nodes[0], fmt.Sprintf(push, name)); got != "200 405 000" {
		t.Errorf("a node that pushes is answered %s, want 200 to log in, 405 to push, nothing at the port for that", got)
	}
}

// content lists what is in the private registry, by the names that images have elsewhere.
func content(t *testing.T, c *cluster) (refs []string) {
	t.Helper()
	said := c.run(t, "registry", "list", "-o", "json").ok(t)
	var list struct {
		Images []struct{ Repository, Tag string }
	}
	if err := json.Unmarshal(said.stdout.Bytes(), &list); err != nil || len(list.Images) == 0 {
		t.Fatalf("registry list: %v\n%s", err, said.stdout.String())
	}
	for _, i := range list.Images {
		refs = append(refs, i.Repository+":"+i.Tag)
	}
	return refs
}
