// Package clustertest makes planned clusters for tests, and shows what steps
// bring to their hosts.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
)

// Alone is the beginning of a configuration of one machine without etcd, to which sections can be added.
const Alone = `apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  hosts: [{name: node1, address: 10.0.0.11, roles: [master, worker]}]
`

// frame is a configuration of one master and one worker.
const frame = `apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  hosts:
  - {name: node1, address: 10.0.0.11, roles: [master, etcd]}
  - {name: node2, address: 10.0.0.12, roles: [worker]}
`

// Masters is the beginning of a configuration of three masters, to which hosts and
// sections can be added.
const Masters = `apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  hosts:
  - {name: node1, address: 10.0.0.11, roles: [master, etcd]}
  - {name: node2, address: 10.0.0.12, roles: [master, etcd]}
  - {name: node3, address: 10.0.0.13, roles: [master, etcd]}
`

// CAFile is a file with the certificate of an authority that no cluster has.
func CAFile(t testing.TB) string {
	t.Helper()
	ca, err := (&pki.Store{Dir: t.TempDir()}).CA(pki.Registry)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// New plans a cluster of a master, node1, and a worker, node2, both like
// runnertest.Debian12. spec adds lines to the configuration; edit, if not nil,
// changes what is known of the hosts.
func New(t testing.TB, spec string, edit func(host string, f *runner.Facts)) *cluster.Cluster {
	t.Helper()
	return Parse(t, frame+spec, edit)
}

// Stock gives a cluster a store with the images of a node, from a fake upstream that is as long as the test.
func Stock(t testing.TB, c *cluster.Cluster, node string) {
	t.Helper()
	u := resourcetest.New()
	t.Cleanup(u.Close)
	dir := t.TempDir()
	store, err := resource.Open(dir, source.Config{Mirrors: u.Sources()})
	if err = errors.Join(err, resourcetest.Trust(dir)); err != nil {
		t.Fatal(err)
	}
	for _, ref := range c.Images(node) {
		if err := store.Pull(t.Context(), ref, "amd64", nil); err != nil {
			t.Fatal(err)
		}
	}
	c.Store = store
}

// Parse plans a cluster of a whole configuration.
func Parse(t testing.TB, text string, edit func(host string, f *runner.Facts)) *cluster.Cluster {
	t.Helper()
	if !strings.Contains(text, "  network:") {
		text += "  network: {plugin: flannel}\n"
	}
	conf, _, err := config.Parse("cluster.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	facts := map[string]*runner.Facts{}
	for i := range conf.Spec.Hosts {
		h := &conf.Spec.Hosts[i]
		machine := runnertest.Debian12(h.Name)
		machine.SetIPs(h.IPs()...)
		f, err := machine.Runner().Facts(context.Background(), cluster.DataDirs(&conf.Spec, h)...)
		if err != nil {
			t.Fatal(err)
		}
		if edit != nil {
			edit(h.Name, f)
		}
		facts[h.Name] = f
	}
	dir := t.TempDir()
	store, err := resource.Open(filepath.Join(dir, "packages"), source.Config{Offline: true})
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.New(conf, filepath.Join(dir, conf.Metadata.Name), store, facts)
	t.Cleanup(func() {
		if err := c.Err(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// ExternalEtcd is the section of an etcd that kubexm does not run, with files for user "user" that store makes.
func ExternalEtcd(t testing.TB, store *pki.Store) string {
	t.Helper()
	_, err := store.Leaf(pki.EtcdClient("user"))
	if err = errors.Join(err, store.Flush()); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`  etcd: {type: external, external: {endpoints: ["https://10.0.0.31:2379"], caFile: %[1]s/etcd/ca.crt, certFile: %[1]s/etcd/node-user.crt, keyFile: %[1]s/etcd/node-user.key}}
`, store.Dir)
}

func reload(b *strings.Builder, r step.Reload) {
	for _, f := range r.Files {
		file(b, f)
	}
	fmt.Fprintf(b, "reloaded: %s, signal %s\nrestarted for:\n%s", r.Check, r.Signal, r.Frame)
}

// Text shows what steps bring to a host: files with permissions and content,
// objects, and of other steps all their fields. Keys and certificates differ from
// cluster to cluster and are left out.
func Text(steps ...step.Step) string {
	var b strings.Builder
	for _, s := range steps {
		s = step.Unwrap(s)
		fmt.Fprintf(&b, "==== %s\n", s)
		switch s := s.(type) {
		case step.File:
			file(&b, s)
		case step.Files:
			for _, f := range s.List {
				file(&b, f)
			}
		case step.Inventory:
			for _, f := range s.With {
				file(&b, f)
			}
		case step.Block:
			show(&b, s.Path, s.Mode, []byte(s.Begin+"\n"+string(s.Content)+s.End))
		case step.Service:
			unit := "/etc/systemd/system/" + s.Name + ".service"
			show(&b, unit, 0o644, s.Unit)
			show(&b, unit+".d/kubexm-"+s.Name+".conf", 0o644, s.DropIn)
			for _, f := range s.Files {
				file(&b, f)
			}
			if s.Reload != nil {
				reload(&b, *s.Reload)
			}
			for _, r := range s.Reads {
				fmt.Fprintf(&b, "reads: %s\n", r)
			}
			if s.Hold != nil {
				fmt.Fprintf(&b, "held until there are %s\n", s.Hold)
			}
		case step.Pod:
			reload(&b, s.Reload)
			file(&b, s.Manifest)
		case step.Apply:
			b.Write(s.Objects)
		default:
			text, err := yaml.Marshal(s)
			if err != nil {
				text = []byte(err.Error())
			}
			b.Write(text)
		}
	}
	return b.String()
}

func file(b *strings.Builder, f step.File) { show(b, f.Path, f.Mode, f.Content) }

var (
	block = regexp.MustCompile(`(?s)-----BEGIN ([A-Z ]+)-----.*?-----END [A-Z ]+-----`)
	data  = regexp.MustCompile(`(?m)(-data: |kubexm\.io/kubeconfig: )[^}\n]*`)
)

func show(b *strings.Builder, path string, mode fs.FileMode, content []byte) {
	text := data.ReplaceAllString(block.ReplaceAllString(string(content), "($1)"), "${1}(left out)")
	fmt.Fprintf(b, "-- %s %04o\n%s", path, mode, text)
	if !strings.HasSuffix(text, "\n") {
		b.WriteString("\n")
	}
}

// TrustAnother makes a cluster trust a second certificate as one of its authorities, as in the middle of a rotation.
func TrustAnother(t testing.TB, c *cluster.Cluster, ca pki.CA) {
	t.Helper()
	other, err := (&pki.Store{Dir: t.TempDir()}).CA(ca)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(c.Certs.Dir, string(ca))
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "trust.crt"), other.Cert, 0o600)); err != nil {
		t.Fatal(err)
	}
}
