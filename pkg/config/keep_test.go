package config

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/util/diff"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestKeep keeps every configuration that is right: what is read from that again is the same but for secrets, and is kept the same.
func TestKeep(t *testing.T) {
	t.Setenv("KXZONE", "")
	files, _ := filepath.Glob("testdata/valid/*.yaml")
	rows, _ := filepath.Glob("../../internal/app/testdata/scenarios/*/cluster.yaml")
	if len(files) == 0 || len(rows) == 0 {
		t.Fatal("there are no configurations")
	}
	for _, file := range append(files, rows...) {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, k, was := kept(t, data)
			if bytes.Contains(k.Text, []byte("hunter2")) || bytes.Contains(k.Text, []byte("***")) {
				t.Errorf("a secret is kept:\n%s", k.Text)
			}
			again, _, err := Parse("cluster.yaml", filledIn(t, k))
			if again == nil || (err == nil) != (was == nil) {
				t.Fatalf("it cannot be read again: %v\n%s", err, k.Text)
			}
			want, err1 := Show(c)
			got, err2 := Show(again)
			if err := errors.Join(err1, err2); err != nil || !bytes.Equal(want, got) {
				t.Errorf("it is another configuration: %v\n%s", err, diff.Unified("configuration", string(want), string(got)))
			}
			if _, second, _ := kept(t, k.Text); !bytes.Equal(second.Text, k.Text) {
				t.Errorf("it is not kept the same again:\n%s", second.Text)
			}
		})
	}
}

// kept also returns what is wrong with the configuration, like files that are not there.
func kept(t *testing.T, data []byte) (c *v1alpha1.Cluster, k Kept, wrong error) {
	t.Helper()
	c, _, wrong = Parse("cluster.yaml", data)
	if c == nil {
		t.Fatal(wrong)
	}
	k, err := Keep(c)
	if err != nil {
		t.Fatal(err)
	}
	return c, k, wrong
}

// filledIn is what is kept, with a secret in each field that was left out.
func filledIn(t *testing.T, k Kept) []byte {
	t.Helper()
	var doc map[string]any
	if err := yaml.Unmarshal(k.Text, &doc); err != nil {
		t.Fatal(err)
	}
	for _, path := range k.Secrets {
		at := doc
		keys := regexp.MustCompile(`[^.\[\]]+|\[[^\]]+\]`).FindAllString(path, -1)
		for _, key := range keys[:len(keys)-1] {
			switch next := at[strings.Trim(key, "[]")].(type) {
			case []any:
				at = byName(next)
				for i, item := range next {
					at[strconv.Itoa(i)] = item
				}
			case map[string]any:
				at = next
			default:
				t.Fatalf("nothing is at %s", path)
			}
		}
		at[keys[len(keys)-1]] = "hunter2"
	}
	text, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const withSecrets = `# login: hunter2
apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: prod}
spec:
  registry:
    auth:
      b.example.com: {username: b, password: hunter2}
      a.example.com: {username: a, passwordFrom: {file: ~/a}, caFile: ~/a.pem}
  global: {user: ops, password: hunter2, passphraseFrom: {env: PHRASE}, privateKeyPath: ~/.ssh/prod, bastion: {address: 192.0.2.1, password: hunter2}}
  source: {access: {"https://mirror.example.com": {username: ci, password: hunter2}}}
  hosts:
  - {name: node1, address: 10.0.0.11, roles: [master, etcd], sudoPassword: &secret hunter2}    # hunter2
  - {name: node2, address: 10.0.0.12, roles: [worker], sudoPasswordFrom: {exec: pass show node2}, password: *secret}
  etcd: {type: external, external: {endpoints: ["https://192.0.2.21:2379"], caFile: ca.pem, certFile: client.pem, keyFile: client.key}}
`

// TestKeepNoSecret shows what is kept of a configuration with secrets wherever they may be, and what is told of them.
func TestKeepNoSecret(t *testing.T) {
	_, k, _ := kept(t, []byte(withSecrets))
	golden.Equal(t, fmt.Sprintf("%s\nsecrets:\n%s\n\noutside:\n%s\n", k.Text, strings.Join(k.Secrets, "\n"), strings.Join(Outside(k.Text), "\n")))
}

// TestKeepOfOtherWords keeps the same of a text in which only order, comments and notation differ.
func TestKeepOfOtherWords(t *testing.T) {
	const head = "apiVersion: kubexm.io/v1alpha1\nkind: Cluster\nmetadata: {name: prod}\n"
	_, one, _ := kept(t, []byte(head+"spec: {network: {plugin: flannel}, hosts: [{name: node1, address: 10.0.0.11, roles: [master, etcd, worker]}]}\n"))
	_, other, _ := kept(t, []byte("# mine\n"+head+"spec:\n  hosts:\n  - address: 10.0.0.11\n    roles:\n    - master\n    - etcd\n    - worker\n    name: 'node1'\n  network:\n    plugin: flannel # ours\n"))
	if !bytes.Equal(one.Text, other.Text) {
		t.Errorf("got\n%s\nand\n%s", one.Text, other.Text)
	}
}

// TestKeepOfManyHosts measures what is kept of a thousand hosts: it must fit in an object of the API.
func TestKeepOfManyHosts(t *testing.T) {
	text := "apiVersion: kubexm.io/v1alpha1\nkind: Cluster\nmetadata: {name: prod}\nspec:\n  hosts:\n"
	for i := range 1000 {
		roles := "worker"
		if i < 3 {
			roles = "master, etcd"
		}
		text += fmt.Sprintf("  - {name: rack%02d-node%04d, address: 10.0.%d.%d, roles: [%s], labels: {topology.kubernetes.io/zone: zone-%d, example.com/rack: rack%02d}}\n", i/40, i, 1+i/250, 1+i%250, roles, i%3, i/40)
	}
	_, k, _ := kept(t, []byte(text))
	t.Logf("%d bytes of %d", len(k.Text), len(text))
	if len(k.Text) > 512<<10 || !slices.Equal(k.Secrets, nil) {
		t.Errorf("%d bytes are kept, and %q left out", len(k.Text), k.Secrets)
	}
}

// TestKeptData puts configurations of all sizes into a Secret, and reads them there.
func TestKeptData(t *testing.T) {
	random := make([]byte, 2<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	for _, c := range []struct {
		what string
		text []byte
		key  string
	}{
		{"as it is", []byte("kind: Cluster\n"), "cluster.yaml"},
		{"compressed", bytes.Repeat([]byte("  - {name: node1}\n"), 100_000), "cluster.yaml.gz"},
		{"too large", random, ""},
	} {
		was := Kept{Text: c.text, Secrets: []string{"spec.global.password", "spec.hosts[node1].password"}, Kubexm: "v1.2.3"}
		data, size := was.Data(), 0
		for _, value := range data {
			size += len(value)
		}
		is, err := ReadKept(data)
		if c.key == "" {
			was.Text = nil
		}
		if err != nil || !reflect.DeepEqual(was, is) || (data[c.key] == nil) != (c.key == "") || size > 1<<20 {
			t.Errorf("%s: %d bytes, %v", c.what, size, err)
		}
	}
	if _, err := ReadKept(map[string][]byte{"cluster.yaml.gz": []byte("rubbish")}); err == nil {
		t.Error("rubbish is read")
	}
}
