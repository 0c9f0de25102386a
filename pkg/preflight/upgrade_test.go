package preflight_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/preflight"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

var upgradeChecks = []string{"upgrade-health", "skew", "certificates", "removed-apis", "deprecated-apis", "disruptions", "webhooks", "snapshot-space"}

// free is how much space this machine has, and asked the API server that was the last one to be asked.
var (
	free  = regexp.MustCompile(`[0-9.]+ [KMGT]iB free`)
	asked = regexp.MustCompile(`10.0.0.1\d:6443: `)
)

// older is a cluster of three masters and a worker that runs a release before the one that it is to have.
type older struct {
	preflight.Look
	t   *testing.T
	is  *cluster.Observed
	api *kubetest.Server
	at  *runnertest.Host // from where API servers are reached

	over context.Context // ends with the test, and all connections with it
}

func newOlder(ctx context.Context, t *testing.T) *older {
	c := clustertest.Parse(t, clustertest.Masters+"  - {name: node4, address: 10.0.0.14, roles: [worker]}\n", func(host string, f *runner.Facts) {
		f.Running = []string{"kubeadm", "kubelet"}
		if host != "node4" {
			f.Running = append(f.Running, "kube-apiserver", "etcd")
		}
	})
	c.ID()
	was, roots := config.VersionsFor("v1.36.0"), x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CA(pki.Kubernetes).Cert)
	o := &older{t: t, over: ctx, is: &c.Observed, api: kubetest.New(), at: runnertest.Debian12(plan.API)}
	o.Look = preflight.Look{Cluster: c, Hosts: map[string]*runner.Runner{plan.API: o.at.Runner()}, Which: " --name demo"}
	c.Observed.Nodes = map[string]cluster.Node{"node4": {Ready: true, Version: was.Kubernetes}}
	for i, h := range c.Masters() {
		conf := &tls.Config{Certificates: []tls.Certificate{*c.Leaf(c.APIServerCert(h)).TLS()}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
		o.at.Serve(c.IP(h)+":6443", func() (net.Conn, error) {
			conn, err := o.api.Dialer(conf)(context.Background(), "", "")
			context.AfterFunc(o.over, func() { _ = conn.Close() })
			return conn, err
		})
		o.is.Nodes[h] = cluster.Node{Ready: true, Version: was.Kubernetes}
		o.is.API = append(o.is.API, cluster.APIServer{Host: h, Version: was.Kubernetes})
		o.is.Members = append(o.is.Members, cluster.EtcdMember{Host: h, Name: h, ID: uint64(i + 1), Healthy: true, Started: true, Version: "3.6.4", DBSize: 1 << 20})
	}
	if err := c.Certs.Flush(); err != nil {
		t.Fatal(err)
	}
	return o
}

// holds lets the cluster have objects.
func (o *older) holds(text string) {
	objects, err := kube.ReadObjects([]byte(text))
	if err != nil {
		o.t.Fatal(err)
	}
	for _, obj := range objects {
		o.api.Put(obj)
	}
}

// uses lets it use removed APIs.
func (o *older) uses() {
	o.api.Metrics = "# TYPE apiserver_requested_deprecated_apis gauge\n" +
		`apiserver_requested_deprecated_apis{group="networking.k8s.io",removed_release="1.37",resource="ipaddresses",subresource="",version="v1beta1"} 1` + "\n" +
		`apiserver_requested_deprecated_apis{group="example.org",removed_release="1.37",resource="things",subresource="",version="v1beta1"} 1` + "\n"
	const class = `{"apiVersion":"storage.k8s.io/v1beta1","kind":"VolumeAttributesClass","metadata":{"name":"gold"}}`
	obj := &unstructured.Unstructured{}
	obj.SetAPIVersion("storage.k8s.io/v1")
	obj.SetKind("VolumeAttributesClass")
	obj.SetName("gold")
	obj.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": class})
	o.api.Put(obj)
	for name, release := range map[string]string{"web": fmt.Sprintf(`{"manifest":%q}`, class), "broken": "no"} {
		packed := base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(release))))
		o.holds(fmt.Sprintf(`{apiVersion: v1, kind: Secret, type: helm.sh/release.v1, data: {release: %[2]s}, metadata: {
  name: sh.helm.release.v1.%[1]s.v3, namespace: shop, labels: {owner: helm, status: deployed, name: %[1]s, version: "3"}}}`, name, packed))
	}
}

// blocks lets it have a disruption budget that allows nothing, and a webhook that nothing answers for.
func (o *older) blocks() {
	o.holds(`
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: shop}, status: {disruptionsAllowed: 0, expectedPods: 3, currentHealthy: 2, desiredHealthy: 2}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: db, namespace: shop}, status: {disruptionsAllowed: 1, expectedPods: 3, currentHealthy: 3, desiredHealthy: 2}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: policy}, webhooks: [
  {name: pods.policy.io, rules: [{operations: ["*"], apiGroups: [""], apiVersions: [v1], resources: [pods]}], clientConfig: {service: {namespace: policy, name: hook}}}]}
`)
}

// lonePods lets it have two pods without a controller on a worker, and one with.
func (o *older) lonePods() {
	o.holds(`
{apiVersion: v1, kind: Pod, metadata: {name: debug, namespace: shop}, spec: {nodeName: node4}}
---
{apiVersion: v1, kind: Pod, metadata: {name: shell, namespace: default}, spec: {nodeName: node4}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: x, controller: true}]}, spec: {nodeName: node4, volumes: [{name: x, emptyDir: {}}]}}
`)
}

// arrived lets API servers and nodes, or members of etcd, run what they are to run.
func (o *older) arrived(kubernetes, etcd bool) {
	for i := range o.is.API {
		if kubernetes {
			o.is.API[i].Version = o.Cluster.Spec.Kubernetes.Version
			o.is.Nodes["node"+fmt.Sprint(i+1)] = cluster.Node{Ready: true, Version: o.Cluster.Spec.Kubernetes.Version}
			o.is.Nodes["node4"] = o.is.Nodes["node1"]
		}
		if etcd {
			o.is.Members[i].Version = strings.TrimPrefix(o.Cluster.Spec.Etcd.Version, "v")
		}
	}
}

// before makes certificates as they were made so that one that is valid for so many days has some of them left.
func before(dir string, left, of int) *pki.Store {
	return &pki.Store{Dir: dir, Validity: time.Duration(of) * 24 * time.Hour, Now: func() time.Time { return time.Now().AddDate(0, 0, left-of) }}
}

// authority lets an authority be valid for some days yet.
func (o *older) authority(ca pki.CA, left int) {
	s := before(o.Cluster.Certs.Dir, left, 3650)
	_, err := s.CA(ca)
	if err = errors.Join(err, s.Flush()); err != nil {
		o.t.Fatal(err)
	}
}

// external lets it have an external etcd, with a client's certificate that is valid for some days yet, of so many.
func (o *older) external(left, of int) {
	dir := filepath.Join(o.Cluster.Dir, "etcd")
	clustertest.ExternalEtcd(o.t, before(dir, left, of))
	file := func(name string) string { return filepath.Join(dir, "etcd", name) }
	o.Cluster.Spec.Etcd = v1alpha1.Etcd{Type: v1alpha1.TypeExternal, External: &v1alpha1.ExternalEtcd{CAFile: file("ca.crt"), CertFile: file("node-user.crt"), KeyFile: file("node-user.key")}}
	o.is.Members = nil
	for _, h := range o.Cluster.Masters() {
		o.Cluster.Facts[h].Env = map[string]string{"cluster": o.Cluster.Name, "id": o.Cluster.ID()}
	}
}

func (o *older) away() {
	for _, h := range o.Cluster.Masters() {
		o.at.Serve(o.Cluster.IP(h)+":6443", func() (net.Conn, error) { return nil, errors.New("connection refused") })
	}
}

// TestUpgradeChecks shows what each check of an upgrade finds, and that each can be skipped.
func TestUpgradeChecks(t *testing.T) {
	for name, spoil := range map[string]func(*older){
		"well": func(*older) {},
		"nothing changes": func(o *older) {
			o.arrived(true, true)
			o.uses()
			o.blocks()
			o.is.Members[0].Healthy = false
		},
		"etcd": func(o *older) {
			for i, why := range []string{"alarm NOSPACE", "alarm CORRUPT", "connection refused"} {
				o.is.Members[i].Healthy, o.is.Members[i].Err = false, why
			}
			o.is.Members = append(o.is.Members, cluster.EtcdMember{Name: "stranger", ID: 255, Err: "no answer"})
		},
		"no etcd": func(o *older) { o.is.Members = nil },
		"new member of etcd": func(o *older) {
			o.is.Members[2] = cluster.EtcdMember{Host: "node3", Err: "connection refused"}
			o.Cluster.Facts["node3"].Running = nil
		},
		"API server": func(o *older) { o.is.API[1].Err = "not ready:\netcd" },
		"new master": func(o *older) {
			o.is.API[1].Err = "connection refused"
			o.Cluster.Facts["node2"].Running = nil
			delete(o.is.Nodes, "node2")
		},
		"nodes": func(o *older) {
			o.is.Nodes["node4"] = cluster.Node{Reason: "KubeletNotReady: cni plugin not initialized"}
			o.is.Members[2].Healthy = false
			o.Cluster.LeaveOut("node3")
		},
		"removed APIs":            (*older).uses,
		"removed on a longer way": func(o *older) { o.Cluster.Spec.Kubernetes.Version, o.To = "v1.36.9", 37; o.uses() },
		"removed later":           func(o *older) { o.Cluster.Spec.Kubernetes.Version = "v1.36.9"; o.uses() },
		"back": func(o *older) {
			for i := range o.is.API {
				o.is.API[i].Version = "v1.38.0"
			}
			o.uses()
		},
		"blocked":              (*older).blocks,
		"blocked, no drains":   func(o *older) { o.arrived(true, false); o.blocks() },
		"blocked on the way":   func(o *older) { o.arrived(true, false); o.Cluster.Passing = true; o.blocks() },
		"lone pods":            (*older).lonePods,
		"lone pods are lost":   func(o *older) { o.Cluster.Spec.Upgrade.Drain.Force = true; o.lonePods() },
		"data of pods is kept": func(o *older) { keep := false; o.Cluster.Spec.Upgrade.Drain.DeleteEmptyDir = &keep; o.lonePods() },
		"lone pods, held":      func(o *older) { o.Cluster.Only = []string{"node1"}; o.lonePods() },
		"no space":             func(o *older) { o.is.Members[2].DBSize = 1 << 60 },
		"API does not answer":  (*older).away,
		"no API server is ready": func(o *older) {
			for i := range o.is.API {
				o.is.API[i].Err = "not ready"
			}
			o.is.API[0].Version = "v1.36.0"
		},
		"half done": func(o *older) {
			o.is.API[0].Version = o.Cluster.Spec.Kubernetes.Version
			o.is.API[1].Err = "not ready"
			o.blocks()
		},
		"skew": func(o *older) {
			o.is.API[1].Version = "v1.34.11"
			o.is.Nodes["node4"] = cluster.Node{Ready: true, Version: "v1.33.13"}
		},
		"authorities": func(o *older) {
			o.authority(pki.Etcd, 60)
			o.authority(pki.FrontProxy, -2)
		},
		"external etcd":             func(o *older) { o.external(30, 365) },
		"external etcd's authority": func(o *older) { o.external(80, 3650) },
		"cut off before":            func(o *older) { o.Onward = true; o.is.API[1].Err = "not ready" },
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				o := newOlder(ctx, t)
				spoil(o)
				var b strings.Builder
				names := map[string]bool{}
				for _, f := range o.found() {
					f.Found, f.Fix = strings.ReplaceAll(f.Found, o.Cluster.Dir, "DIR"), strings.ReplaceAll(f.Fix, o.Cluster.Dir, "DIR") // lines are broken by their length
					text, err := yaml.Marshal(f)
					if err != nil {
						t.Fatal(err)
					}
					fmt.Fprintf(&b, "---\n%s", text)
					names[f.Check] = true
				}
				golden.Equal(t, asked.ReplaceAllString(free.ReplaceAllString(b.String(), "N free"), "SERVER: "))
				for name := range names {
					o.Skip = []string{name}
					if slices.ContainsFunc(o.found(), func(f preflight.Finding) bool { return f.Check == name }) {
						t.Errorf("%s is not skipped", name)
					}
				}
			})
		})
	}
}

// found is what the checks of an upgrade find.
func (o *older) found() []preflight.Finding {
	o.t.Helper()
	all, err := o.Findings(o.t.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f preflight.Finding) bool { return !slices.Contains(upgradeChecks, f.Check) })
}
