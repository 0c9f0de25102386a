// Package etcd holds the steps that run etcd as a binary under systemd, and with what
// API servers call it, or an etcd that somebody else runs.
package etcd

import (
	"fmt"
	"maps"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/step"
)

// SSLDir holds etcd's certificates on a host.
const SSLDir = "/etc/ssl/etcd/ssl"

const binDir = "/usr/local/bin"

// Programs puts etcd and its tools on the host.
func Programs(c *cluster.Cluster, host string) step.Step {
	u := step.Upload{What: "etcd", Store: c.Store, Programs: []step.Programs{{Artifact: c.Artifact("etcd", host), Dir: binDir}}}
	return step.With(u, step.Options{Limit: step.LimitTransfer})
}

// MemberCerts writes what a member shows and what its administrator uses.
func MemberCerts(c *cluster.Cluster, host string) step.Step {
	return step.Files{What: "etcd certificates", List: append(caFile(c.Trust(pki.Etcd)),
		append(pair("member-"+host, c.Leaf(pki.EtcdMember(host, c.Addresses(host)))),
			pair("admin-"+host, c.Leaf(pki.EtcdAdmin(host)))...)...)}
}

// Shell lets etcdctl of root's login shell reach the member of the host.
func Shell(c *cluster.Cluster, host string) step.Step {
	name := SSLDir + "/admin-" + host
	const form = `if [ "$(id -u)" = 0 ] && [ -z "${ETCDCTL_ENDPOINTS-}" ]; then
	export ETCDCTL_ENDPOINTS=%s ETCDCTL_CACERT=%s ETCDCTL_CERT=%s.pem ETCDCTL_KEY=%[3]s-key.pem
fi
`
	text := fmt.Sprintf(form, c.EtcdURL(host), caPath, name)
	return step.File{Path: "/etc/profile.d/kubexm-etcdctl.sh", Mode: 0o644, Content: step.Content(text)}
}

// ClientCerts writes with what a master's API server calls etcd: a certificate of its own,
// or the user's for an external etcd.
func ClientCerts(c *cluster.Cluster, host string) step.Step {
	files := step.Files{What: "etcd client certificate"}
	if c.ExternalEtcd() {
		user := c.EtcdClient()
		files.List = append(caFile(user.CA), pair(client(c, host), &pki.Pair{Cert: user.Cert, Key: user.Key})...)
		return files
	}
	files.List = append(caFile(c.Trust(pki.Etcd)), pair(client(c, host), c.Leaf(pki.EtcdClient(host)))...)
	return files
}

// client is the name of the API server's certificate on a host. kubeadm has one name
// for all masters.
func client(c *cluster.Cluster, host string) string {
	if c.Kubeadm() {
		return "apiserver"
	}
	return "node-" + host
}

func caFile(cert []byte) []step.File {
	return []step.File{{Path: caPath, Content: cert, Mode: 0o644}}
}

// caPath is the certificate of etcd's authority.
const caPath = SSLDir + "/ca.pem"

// Endpoint is how the API server on a host reaches etcd.
func Endpoint(c *cluster.Cluster, host string) cluster.EtcdEndpoint {
	name := SSLDir + "/" + client(c, host)
	return cluster.EtcdEndpoint{Endpoints: c.EtcdURLs(), CAFile: caPath, CertFile: name + ".pem", KeyFile: name + "-key.pem"}
}

func pair(name string, p *pki.Pair) []step.File {
	return []step.File{
		{Path: SSLDir + "/" + name + ".pem", Content: p.Cert, Mode: 0o644, Reread: true}, // at each handshake
		{Path: SSLDir + "/" + name + "-key.pem", Content: step.Content(p.Key.Reveal()), Mode: 0o600, Reread: true},
	}
}

// DataDir makes the directory of the data.
func DataDir(c *cluster.Cluster) step.Step { return step.Dir{Path: c.Spec.Etcd.DataDir, Mode: 0o700} }

// bootstrap is what a member reads when it starts for the first time.
const bootstrap = "/etc/etcd/bootstrap.env"

// Bootstrap tells a member with whom it begins. Later it knows that from its data, so that a running one does not start anew
// when this changes.
func Bootstrap(c *cluster.Cluster) step.Step {
	var peers []string
	for _, h := range c.All(v1alpha1.RoleEtcd) {
		peers = append(peers, h+"="+c.PeerURL(h))
	}
	return step.File{Path: bootstrap, Mode: 0o644, Content: fmt.Appendf(nil,
		"# Made by kubexm.\nETCD_INITIAL_CLUSTER=%s\nETCD_INITIAL_CLUSTER_STATE=new\nETCD_INITIAL_CLUSTER_TOKEN=kubexm-%s\n", strings.Join(peers, ","), c.Name)}
}

// Service runs the member. All members of a new cluster start at once, none
// waits for another.
func Service(c *cluster.Cluster, host string) step.Step {
	clients, peers, cert := c.EtcdURL(host), c.PeerURL(host), SSLDir+"/member-"+host
	args := map[string]string{
		"name": host, "data-dir": c.Spec.Etcd.DataDir,
		"listen-client-urls": clients + ",https://127.0.0.1:2379", "advertise-client-urls": clients,
		"listen-peer-urls": peers, "initial-advertise-peer-urls": peers,
		"client-cert-auth": "true", "trusted-ca-file": caPath, "cert-file": cert + ".pem", "key-file": cert + "-key.pem",
		"peer-client-cert-auth": "true", "peer-trusted-ca-file": caPath, "peer-cert-file": cert + ".pem", "peer-key-file": cert + "-key.pem",
		"snapshot-count": "10000", "auto-compaction-retention": "8", "quota-backend-bytes": "8589934592",
	}
	maps.Copy(args, c.Spec.Etcd.ExtraArgs)
	return step.Unit{
		Name: "etcd", Description: "etcd key-value store", Documentation: "https://etcd.io/docs", After: "network-online.target",
		Type: "notify", Command: binDir + "/etcd", Args: args,
		Settings: append(step.Limits(c.FactsOf(host).CanRaiseLimits(), "-999"), "TimeoutStartSec=90", "EnvironmentFile="+bootstrap),
		Reads:    []step.Step{Programs(c, host), MemberCerts(c, host)},
	}.Service()
}
