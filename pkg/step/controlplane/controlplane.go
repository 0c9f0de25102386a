// Package controlplane holds the steps that run the Kubernetes control plane and
// kube-proxy as plain binaries under systemd.
package controlplane

import (
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

const (
	binDir = "/usr/local/bin"
	pkiDir = "/etc/kubernetes/pki/"
	docs   = "https://kubernetes.io/docs"
)

// Programs puts one program on the host. Each service has its own step, so that
// it restarts for its own program only.
func Programs(c *cluster.Cluster, host, name string) step.Step {
	return step.With(step.Upload{
		What: name, Store: c.Store,
		Programs: []step.Programs{{Artifact: c.Artifact(name, host), Dir: binDir}},
	}, step.Options{Limit: step.LimitTransfer})
}

// PKI writes certificates and keys of a master under the names of kubeadm, which signs none itself. Leaves are read again when they change, by API servers
// and by etcd; authorities and the service-account key when these start.
//
// Facts: k8s.io/apiserver/pkg/server/options/serving.go (dynamiccertificates), k8s.io/kubernetes/pkg/kubelet/client/kubelet_client.go (ReloadTLSFiles),
// go.etcd.io/etcd/client/pkg/v3/transport/listener.go (GetCertificate, GetClientCertificate).
func PKI(c *cluster.Cluster, host string) step.Step {
	files := []step.File{}
	add := func(name string, cert []byte, key secret.Secret, reread bool) {
		files = append(files, step.File{Path: pkiDir + name + ".crt", Content: cert, Mode: 0o644, Reread: reread},
			step.File{Path: pkiDir + name + ".key", Content: step.Content(key.Reveal()), Mode: 0o600, Reread: reread})
	}
	leaf := func(name string, spec pki.Spec) { p := c.Leaf(spec); add(name, p.Cert, p.Key, true) }
	authority := func(name string, ca pki.CA, withKey bool) {
		files = append(files, step.File{Path: pkiDir + name + ".crt", Content: c.Trust(ca), Mode: 0o644})
		if withKey {
			files = append(files, step.File{Path: pkiDir + name + ".key", Content: step.Content(c.CA(ca).Key.Reveal()), Mode: 0o600})
		}
	}
	authority("ca", pki.Kubernetes, true)
	leaf("apiserver", c.APIServerCert(host))
	leaf("apiserver-kubelet-client", pki.APIServerKubeletClient())
	authority("front-proxy-ca", pki.FrontProxy, c.Kubeadm())
	leaf("front-proxy-client", pki.FrontProxyClient())
	if c.Spec.Etcd.Type == v1alpha1.TypeKubeadm {
		authority("etcd/ca", pki.Etcd, true)
		leaf("etcd/server", pki.EtcdMember(host, c.Addresses(host)))
		leaf("etcd/peer", pki.EtcdMember(host, c.Addresses(host)))
		leaf("etcd/healthcheck-client", pki.EtcdAdmin(host))
		leaf("apiserver-etcd-client", pki.EtcdClient(host))
	}
	private, public, err := c.Certs.ServiceAccountKey()
	c.Check(err)
	files = append(files,
		step.File{Path: pkiDir + "sa.key", Content: step.Content(private.Reveal()), Mode: 0o600},
		step.File{Path: pkiDir + "sa.pub", Content: public, Mode: 0o644})
	if signer := c.SignerApart(); signer != nil {
		files = append(files, step.File{Path: cluster.SignerFile, Content: signer, Mode: 0o644})
	}
	return step.Files{What: "Kubernetes certificates", List: files}
}

// Kubeconfigs writes how the programs of a master, and its administrator, reach the API. Those of static pods ask the API server beside them, which
// is never older than they are.
func Kubeconfigs(c *cluster.Cluster, host string) step.Step {
	beside := c.Endpoint()
	if c.Kubeadm() {
		beside = "https://" + net.JoinHostPort(c.IP(host), strconv.Itoa(c.APIPort()))
	}
	file := func(name string, conf secret.Secret) step.File {
		return step.File{Path: "/etc/kubernetes/" + name, Content: step.Content(conf.Reveal()), Mode: 0o600}
	}
	admin := file("admin.conf", c.AdminKubeconfig())
	admin.Reread = true // but by kube-vip, whose pod tells which it has read
	return step.Files{What: "kubeconfigs", List: []step.File{
		admin,
		file("controller-manager.conf", c.Kubeconfig(beside, "system:kube-controller-manager", pki.ControllerManager())),
		file("scheduler.conf", c.Kubeconfig(beside, "system:kube-scheduler", pki.Scheduler())),
	}}
}

// APIServer runs kube-apiserver. etcdCerts writes the client files of its etcd.
func APIServer(c *cluster.Cluster, host string, etcd cluster.EtcdEndpoint, etcdCerts step.Step) step.Step {
	args := apiServerArgs(c, host, etcd)
	maps.Copy(args, c.APIServerArgs())
	for flag := range c.Spec.Kubernetes.APIServer.ExtraArgs {
		if config.Dashed(flag) == "authorization-config" { // takes the place of flags (pkg/kubeapiserver/options/authorization.go)
			delete(args, "authorization-mode")
		}
	}
	return service(c, host, "kube-apiserver", args, c.Spec.Kubernetes.APIServer.ExtraArgs, "notify", PKI(c, host), etcdCerts)
}

// apiServerArgs are those of kubeadm's static pod.
//
// Facts: https://kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver
func apiServerArgs(c *cluster.Cluster, host string, etcd cluster.EtcdEndpoint) map[string]string {
	return map[string]string{
		"advertise-address": c.IP(host), "secure-port": strconv.Itoa(c.APIPort()), "allow-privileged": "true",
		"authorization-mode": "Node,RBAC", "enable-admission-plugins": "NodeRestriction",
		"client-ca-file": pkiDir + "ca.crt", "tls-cert-file": pkiDir + "apiserver.crt", "tls-private-key-file": pkiDir + "apiserver.key",
		"etcd-servers": strings.Join(etcd.Endpoints, ","), "etcd-cafile": etcd.CAFile, "etcd-certfile": etcd.CertFile, "etcd-keyfile": etcd.KeyFile,
		"kubelet-client-certificate": pkiDir + "apiserver-kubelet-client.crt", "kubelet-client-key": pkiDir + "apiserver-kubelet-client.key", "kubelet-preferred-address-types": "InternalIP,ExternalIP,Hostname",
		"proxy-client-cert-file": pkiDir + "front-proxy-client.crt", "proxy-client-key-file": pkiDir + "front-proxy-client.key",
		"requestheader-client-ca-file": pkiDir + "front-proxy-ca.crt", "requestheader-allowed-names": "front-proxy-client",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-", "requestheader-group-headers": "X-Remote-Group",
		"requestheader-username-headers": "X-Remote-User",
		"service-account-issuer":         "https://kubernetes.default.svc." + c.Spec.Kubernetes.DNSDomain,
		"service-account-key-file":       pkiDir + "sa.pub", "service-account-signing-key-file": pkiDir + "sa.key",
		"service-cluster-ip-range": c.Spec.Network.ServiceCIDR,
	}
}

// ControllerManager runs kube-controller-manager.
func ControllerManager(c *cluster.Cluster, host string) step.Step {
	const conf = "/etc/kubernetes/controller-manager.conf"
	args := map[string]string{
		"kubeconfig": conf, "authentication-kubeconfig": conf, "authorization-kubeconfig": conf, "bind-address": "127.0.0.1",
		"allocate-node-cidrs": "true", "cluster-cidr": c.Spec.Network.PodCIDR, "cluster-name": c.Name,
		"service-cluster-ip-range": c.Spec.Network.ServiceCIDR,
		"client-ca-file":           pkiDir + "ca.crt", "root-ca-file": pkiDir + "ca.crt", "requestheader-client-ca-file": pkiDir + "front-proxy-ca.crt",
		"cluster-signing-cert-file": pkiDir + "ca.crt", "cluster-signing-key-file": pkiDir + "ca.key",
		"service-account-private-key-file": pkiDir + "sa.key", "use-service-account-credentials": "true",
		"leader-elect": "true",
	}
	maps.Copy(args, c.ControllerManagerArgs())
	return service(c, host, "kube-controller-manager", args, c.Spec.Kubernetes.ControllerManager.ExtraArgs, "simple", PKI(c, host), Kubeconfigs(c, host))
}

// Scheduler runs kube-scheduler.
func Scheduler(c *cluster.Cluster, host string) step.Step {
	const conf = "/etc/kubernetes/scheduler.conf"
	args := map[string]string{
		"kubeconfig": conf, "authentication-kubeconfig": conf, "authorization-kubeconfig": conf, "bind-address": "127.0.0.1", "leader-elect": "true",
	}
	return service(c, host, "kube-scheduler", args, c.Spec.Kubernetes.Scheduler.ExtraArgs, "simple", Kubeconfigs(c, host))
}

// stop is how long a program may take to end, as kubeadm's static pods may: an API server waits for those who read logs or
// run commands in pods, up to a minute.
const stop = "TimeoutStopSec=30"

// service runs one program of the control plane. Each comes after what it talks
// to, so that a machine that goes down stops it before: an API server without
// etcd does not end by itself.
func service(c *cluster.Cluster, host, name string, args, extra map[string]string, kind string, reads ...step.Step) step.Step {
	after := "kube-apiserver.service"
	if name == "kube-apiserver" {
		after = "network-online.target etcd.service"
	}
	if gates := c.FeatureGates(); gates != "" {
		args["feature-gates"] = gates
	}
	maps.Copy(args, extra)
	return step.Unit{
		Name: name, Description: "Kubernetes " + strings.TrimPrefix(name, "kube-"), Documentation: docs, After: after,
		Type: kind, Command: binDir + "/" + name, Args: args, Settings: append(step.Limits(c.FactsOf(host).CanRaiseLimits(), "-999"), stop),
		Reads: append(reads, Programs(c, host, name)),
	}.Service()
}

// RBAC grants what kubeadm would have granted.
func RBAC(c *cluster.Cluster) step.Step {
	return step.Apply{What: "cluster roles", API: c.AnyAPI(), Objects: templates.Render("kubernetes/rbac", struct{ AdminGroup, KubeletClientUser string }{
		pki.AdminGroup, pki.KubeletClientUser,
	})}
}

const proxyDir = "/var/lib/kube-proxy/"

// ProxyConfig writes the configuration and the kubeconfig of kube-proxy.
func ProxyConfig(c *cluster.Cluster, host string) step.Step {
	conf := c.ProxyConfig()
	conf["hostnameOverride"] = host
	return step.Files{What: "kube-proxy", List: []step.File{
		{Path: proxyDir + "config.yaml", Content: c.YAML(conf), Mode: 0o644},
		{Path: proxyDir + "kubeconfig.conf", Content: step.Content(c.Kubeconfig(c.Endpoint(), "system:kube-proxy", pki.KubeProxy()).Reveal()), Mode: 0o600},
	}}
}

// Proxy runs kube-proxy.
func Proxy(c *cluster.Cluster, host string) step.Step {
	return step.Unit{
		Name: "kube-proxy", Description: "Kubernetes service proxy", Documentation: docs, After: "network-online.target",
		Command: binDir + "/kube-proxy", Args: map[string]string{"config": proxyDir + "config.yaml"},
		Settings: append(step.Limits(c.FactsOf(host).CanRaiseLimits(), "-999"), "TimeoutStopSec=10"), // without an API server it may not end
		Reads:    []step.Step{Programs(c, host, "kube-proxy"), ProxyConfig(c, host)},
	}.Service()
}

// Gone ends the control plane of a host that is no master any more. Its keys go with it: nothing there may act for the cluster.
func Gone() step.Step {
	pods := "kube-apiserver kube-controller-manager kube-scheduler"
	for _, vip := range plugin.VIPs() {
		if vip.Pod {
			pods += " " + vip.Unit
		}
	}
	const units = "kube-apiserver kube-controller-manager kube-scheduler"
	look := "left() { for u in " + units + `; do if systemctl is-active -q "$u"; then echo "$u"; fi; done
for p in ` + pods + "; do if [ -e " + runner.ManifestDir + `/"$p".yaml ]; then echo "$p"; fi; done
for f in ` + pkiDir + `*.key /etc/kubernetes/*admin.conf /etc/kubernetes/controller-manager.conf /etc/kubernetes/scheduler.conf; do if [ -e "$f" ]; then echo "$f"; fi; done; }
`
	return step.With(step.Command{
		What: "no control plane", Unless: look + `[ -z "$(left)" ]`,
		Run: look + "systemctl stop " + units + ` 2>/dev/null || true
for p in ` + pods + "; do rm -f " + runner.ManifestDir + `/"$p".yaml
i=0
while command -v crictl >/dev/null && [ -n "$(crictl ps -q --name "^$p\$" 2>/dev/null)" ] && [ $i -lt 200 ]; do i=$((i+1)); sleep 0.2; done; done
rm -f $(left)`,
	}, step.Options{Timeout: 3 * time.Minute})
}
