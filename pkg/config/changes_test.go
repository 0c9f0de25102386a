package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// TestPolicies finds fields without a decision, and refusals without a reason or a way out.
func TestPolicies(t *testing.T) {
	var walk func(of reflect.Type, path string, outer Policy)
	walk = func(of reflect.Type, path string, outer Policy) {
		for _, f := range fieldsOf(of) {
			at, p := join(path, f.name), f.policy.or(outer)
			below := element(of.FieldByIndex(f.index).Type)
			if isObject(below) {
				walk(below, at, p)
				continue
			}
			if meanings[p.Way] == "" {
				t.Errorf("%s: the tag change is %q, and must be none, converge, restart, roll, procedure or refuse", at, p.Way)
			}
			if given := p.Why != "" && p.WayOut != ""; given != (p.Way == Refuse) {
				t.Errorf("%s: %s with the reason %q and the way out %q", at, p.Way, p.Why, p.WayOut)
			}
		}
	}
	walk(reflect.TypeFor[v1alpha1.Spec](), "spec", Policy{})
}

const compared = `apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  global: {user: root, password: hunter2}
  hosts:
  - {name: node1, address: 192.0.2.1, roles: [master, etcd]}
  - {name: node2, address: 192.0.2.2, roles: [worker], labels: {example.com/rack: a}, taints: [{key: a, effect: NoSchedule}]}
  kubernetes:
    apiServer: {extraArgs: {v: "4"}, certSANs: [a.example.com]}
    kubelet: {config: {evictionHard: {memory.available: 100Mi}, serializeImagePulls: false}}
  registry:
    mirrors: {docker.io: ["https://mirror.example.com"]}
    auth: {registry.example.com: {username: nodes, password: hunter2}}
`

// resolve is what a configuration is recorded as. That its files hold no certificates is no matter here.
func resolve(t *testing.T, text, key string) []byte {
	t.Helper()
	c, _, err := Parse("cluster.yaml", []byte(text))
	if c == nil {
		t.Fatal(err)
	}
	out, err := Resolved(c, []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "hunter2") {
		t.Error("a secret is shown")
	}
	return out
}

// differences lists what Changes finds, with the way of each.
func differences(t *testing.T, was, is []byte) string {
	t.Helper()
	all, err := Changes(was, is)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "%s (%s)\n", c, c.Policy.Way)
	}
	return b.String()
}

func TestChanges(t *testing.T) {
	const node3 = "  - {name: node3, address: 192.0.2.3, roles: [%s]}\n  kubernetes:\n"
	for name, tt := range map[string]struct{ old, new, want string }{
		"nothing":       {},
		"how to log in": {"user: root, password: hunter2}", "user: root, password: hunter2}\n  preflight: {minCPUs: 1}", "spec.preflight.minCPUs: 2 -> 1 (none)\n"},
		"an argument": {`v: "4"`, `v: "2", profiling: "false"`, "spec.kubernetes.apiServer.extraArgs[profiling]: (none) -> false (restart)\n" +
			"spec.kubernetes.apiServer.extraArgs[v]: 4 -> 2 (restart)\n"},
		"a list":          {"[a.example.com]", "[b.example.com]", `spec.kubernetes.apiServer.certSANs: ["a.example.com"] -> ["b.example.com"] (restart)` + "\n"},
		"a free field":    {"100Mi", "1Gi", "spec.kubernetes.kubelet.config[evictionHard][memory.available]: 100Mi -> 1Gi (restart)\n"},
		"an object's end": {"{memory.available: 100Mi}", "x", `spec.kubernetes.kubelet.config[evictionHard]: {"memory.available":"100Mi"} -> x (restart)` + "\n"},
		"a label":         {"{example.com/rack: a}", "{}", "spec.hosts[node2].labels[example.com/rack]: a -> (none) (converge)\n"},
		"a taint": {"taints: [{key: a,", "taints: [{key: b,", `spec.hosts[node2].taints: [{"effect":"NoSchedule","key":"a"}] -> ` +
			`[{"effect":"NoSchedule","key":"b"}] (converge)` + "\n"},
		"an address": {"192.0.2.2,", "192.0.2.2, internalAddress: 10.0.0.2,", "spec.hosts[node2].internalAddress: 192.0.2.2 -> 10.0.0.2 (restart)\n"},
		"a role":     {"[worker]", "[worker, etcd]", `spec.hosts[node2].roles: ["worker"] -> ["etcd","worker"] (procedure)` + "\n"},
		"a master": {"[worker]", "[master]", `spec.hosts[node2].roles: ["worker"] -> ["master"] (rejoin)` + "\nspec.loadBalancer.enabled: false -> true (procedure)\n" +
			"spec.loadBalancer.mode: (none) -> internal (procedure)\nspec.loadBalancer.internal.type: (none) -> haproxy (procedure)\n"},
		"by a group":   {"  kubernetes:", "  roleGroups: {worker: [node2]}\n  kubernetes:", `spec.roleGroups.worker: (none) -> ["node2"] (none)` + "\n"},
		"a new worker": {"  kubernetes:\n", fmt.Sprintf(node3, "worker"), `spec.hosts[node3]: (none) -> ["worker"] (converge)` + "\n"},
		"a new member": {"  kubernetes:\n", fmt.Sprintf(node3, "etcd"), `spec.hosts[node3]: (none) -> ["etcd"] (procedure)` + "\n"},
		"a host less":  {compared[strings.Index(compared, "  - {name: node2"):strings.Index(compared, "  kubernetes:")], "", `spec.hosts[node2]: ["worker"] -> (none) (procedure)` + "\n"},
		"a private registry": {"  kubernetes:\n", fmt.Sprintf(node3, "registry"), `spec.hosts[node3]: (none) -> ["registry"] (converge)` + "\n" +
			"spec.registry.type: (none) -> registry (converge)\nspec.registry.privateRegistry: (none) -> registry.kubexm.local (restart)\n" +
			"spec.registry.dataDir: (none) -> /var/lib/registry (converge)\n"},
		"a directory": {"spec:\n", "spec:\n  runtime: {dataRoot: /data}\n", "spec.runtime.dataRoot: /var/lib/containerd -> /data (refuse)\n"},
		"a default":   {"spec:\n", "spec:\n  runtime: {dataRoot: /var/lib/containerd}\n", ""},
		"the endpoint": {"spec:\n", "spec:\n  loadBalancer: {port: 8443, domain: api.example.com}\n", "spec.loadBalancer.domain: lb.kubexm.local -> api.example.com (procedure)\n" +
			"spec.loadBalancer.port: 6443 -> 8443 (procedure)\n"},
		"no mirrors": {`["https://mirror.example.com"]`, "[]", `spec.registry.mirrors[docker.io]: ["https://mirror.example.com"] -> (none) (converge)` + "\n"},
		"a secret":   {"nodes, password: hunter2", "nodes, password: hunter22", "content of spec.registry.auth[registry.example.com].password changed (converge)\n"},
		"an addon": {"  registry:\n", "  addons: [{name: a, type: yaml, inline: \"a: b\\nc: d\"}]\n  registry:\n", "spec.addons[a].name: (none) -> a (converge)\n" +
			`spec.addons[a].inline: (none) -> a: b\nc: d (converge)` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(compared, tt.old, tt.new, 1)
			if got := differences(t, resolve(t, compared, "key"), resolve(t, changed, "key")); got != tt.want {
				t.Errorf("got:\n%swant:\n%s", got, tt.want)
			}
		})
	}
}

// TestContents changes what is in files that a configuration names. Without a key that is known on both sides nothing is said of them.
func TestContents(t *testing.T) {
	dir := t.TempDir()
	directory := filepath.Join(dir, "b")
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	files := []string{write("ca.crt", "1"), write("audit.yaml", "1"), write("a.yaml", "1"), write("b/below/b.yaml", "1")}
	text := strings.NewReplacer("username: nodes", "username: nodes, caFile: "+files[0],
		"apiServer: {", "apiServer: {audit: {policyFile: "+files[1]+"}, ",
		"  registry:\n", "  addons: [{name: a, type: yaml, files: ["+files[2]+", \"https://example.com/x.yaml\"]}, {name: b, files: ["+directory+"]}, "+
			"{name: c, files: [nowhere]}]\n  registry:\n").Replace(compared)
	was := resolve(t, text, "key")
	if got := differences(t, was, resolve(t, text, "key")); got != "" {
		t.Errorf("without a change: %s", got)
	}
	for file, field := range map[string]string{
		"ca.crt": "registry.auth[registry.example.com].caFile", "audit.yaml": "kubernetes.apiServer.audit.policyFile", "a.yaml": "addons[a].files",
		"b/below/b.yaml": "addons[b].files", "b/below/c.yaml": "addons[b].files",
	} {
		write(file, "2")
		got := differences(t, was, resolve(t, text, "key"))
		if lines := strings.Count(got, "\n"); lines != 1 || !strings.HasPrefix(got, "content of spec."+field+" changed (") {
			t.Errorf("%s: %s", file, got)
		}
		if err := os.Rename(filepath.Join(dir, file), filepath.Join(dir, "moved")); err != nil {
			t.Fatal(err)
		}
		if file != "b/below/c.yaml" { // which was not there
			write(file, "1")
		}
	}
	write("ca.crt", "2")
	shown, _, _ := strings.Cut(string(was), "contents:")
	if got := differences(t, []byte(shown), resolve(t, text, "key")); got != "" {
		t.Errorf("without digests: %s", got)
	}
}
