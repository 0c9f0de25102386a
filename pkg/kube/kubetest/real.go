package kubetest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/kubexm/kubexm/pkg/pki"
)

// Assets is the environment variable that names the directory with the programs
// that Start runs, as it does for other test tools: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler.
const Assets = "KUBEBUILDER_ASSETS"

// ControlPlane is a real control plane without nodes, on loopback.
type ControlPlane struct {
	Address string     // of the API server
	Store   *pki.Store // of all its certificates

	dir, assets string
	stops       []func()
}

// Start runs a control plane with the programs in the directory assets. It keeps
// what is its own, and <program>.log, in dir.
func Start(assets, dir string) (*ControlPlane, error) {
	p := &ControlPlane{Store: &pki.Store{Dir: dir}, dir: dir, assets: assets}
	var ports [3]string
	for i := range ports {
		var err error
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	p.Address = "127.0.0.1:" + ports[0]
	err := errors.Join(p.etcd("https://127.0.0.1:"+ports[1], "https://127.0.0.1:"+ports[2]), p.apiServer(ports[0], "https://127.0.0.1:"+ports[1]), p.controllers())
	if err != nil {
		p.Stop()
		return nil, fmt.Errorf("starting a control plane: %w", err)
	}
	return p, nil
}

// Stop ends it.
func (p *ControlPlane) Stop() {
	for _, stop := range slices.Backward(p.stops) {
		stop()
	}
}

func (p *ControlPlane) etcd(clients, peers string) error {
	member, err := p.leaf(pki.EtcdMember("node1", nil))
	if err != nil {
		return err
	}
	ca := p.file(pki.Etcd, "ca.crt")
	return p.run("etcd", "--name=node1", "--data-dir="+filepath.Join(p.dir, "data"), "--unsafe-no-fsync",
		"--listen-client-urls="+clients, "--advertise-client-urls="+clients,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=node1="+peers,
		"--cert-file="+member+".crt", "--key-file="+member+".key", "--trusted-ca-file="+ca, "--client-cert-auth",
		"--peer-cert-file="+member+".crt", "--peer-key-file="+member+".key", "--peer-trusted-ca-file="+ca, "--peer-client-cert-auth")
}

func (p *ControlPlane) apiServer(port, etcd string) error {
	client, err1 := p.leaf(pki.EtcdClient("node1"))
	serving, err2 := p.leaf(pki.APIServer("node1", nil, "cluster.local", []netip.Prefix{netip.MustParsePrefix("10.233.0.0/18")}))
	kubelets, err3 := p.leaf(pki.APIServerKubeletClient())
	proxy, err4 := p.leaf(pki.FrontProxyClient())
	_, public, err5 := p.Store.ServiceAccountKey()
	saPub := p.file(pki.Kubernetes, "sa.pub")
	if err := errors.Join(err1, err2, err3, err4, err5, p.Store.Flush(), os.WriteFile(saPub, public, 0o600)); err != nil {
		return err
	}
	return p.run("kube-apiserver", "--bind-address=127.0.0.1", "--secure-port="+port, "--authorization-mode=Node,RBAC",
		"--etcd-servers="+etcd, "--etcd-cafile="+p.file(pki.Etcd, "ca.crt"), "--etcd-certfile="+client+".crt", "--etcd-keyfile="+client+".key",
		"--tls-cert-file="+serving+".crt", "--tls-private-key-file="+serving+".key", "--client-ca-file="+p.file(pki.Kubernetes, "ca.crt"),
		"--kubelet-client-certificate="+kubelets+".crt", "--kubelet-client-key="+kubelets+".key",
		"--proxy-client-cert-file="+proxy+".crt", "--proxy-client-key-file="+proxy+".key",
		"--requestheader-client-ca-file="+p.file(pki.FrontProxy, "ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+saPub, "--service-account-signing-key-file="+p.file(pki.Kubernetes, "sa.key"),
		"--service-cluster-ip-range=10.233.0.0/18", "--allow-privileged")
}

func (p *ControlPlane) controllers() error {
	manager, err1 := p.kubeconfig(pki.ControllerManager())
	scheduler, err2 := p.kubeconfig(pki.Scheduler())
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return errors.Join(
		p.run("kube-controller-manager", "--kubeconfig="+manager, "--leader-elect=false", "--secure-port=0", "--use-service-account-credentials",
			"--service-account-private-key-file="+p.file(pki.Kubernetes, "sa.key"), "--root-ca-file="+p.file(pki.Kubernetes, "ca.crt")),
		p.run("kube-scheduler", "--kubeconfig="+scheduler, "--leader-elect=false", "--secure-port=0"))
}

func (p *ControlPlane) file(ca pki.CA, name string) string {
	return filepath.Join(p.dir, string(ca), name)
}

// leaf makes a certificate and returns the path of its files, less ".crt" and ".key".
func (p *ControlPlane) leaf(spec pki.Spec) (string, error) {
	_, err := p.Store.Leaf(spec)
	return filepath.Join(p.dir, spec.String()), errors.Join(err, p.Store.Flush())
}

func (p *ControlPlane) kubeconfig(spec pki.Spec) (path string, err error) {
	ca, err1 := p.Store.CA(pki.Kubernetes)
	pair, err2 := p.Store.Leaf(spec)
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	conf, err := pki.Kubeconfig("kubernetes", "https://"+p.Address, ca.Cert, spec.CN, pair)
	if err != nil {
		return "", err
	}
	path = filepath.Join(p.dir, spec.Name+".conf")
	return path, os.WriteFile(path, []byte(conf.Reveal()), 0o600)
}

// run starts a program that ends when its standard input does: with this process,
// however that ends.
func (p *ControlPlane) run(program string, args ...string) error {
	log, err := os.Create(filepath.Join(p.dir, program+".log"))
	if err != nil {
		return err
	}
	cmd := exec.Command("sh", append([]string{"-c", `"$@" & cat; kill -9 $!`, "sh", filepath.Join(p.assets, program)}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.stops = append(p.stops, func() {
		_ = stdin.Close()
		_ = cmd.Wait() // killed
		_ = log.Close()
	})
	return nil
}

// freePort returns a TCP port of loopback that nobody listens on.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
