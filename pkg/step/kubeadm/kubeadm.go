// Package kubeadm holds the steps that make a cluster and add nodes to it with
// kubeadm, the one program that kubexm drives by its command line.
package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

const (
	program = "/usr/local/bin/kubeadm"
	pkiDir  = "/etc/kubernetes/pki/"

	// configPath is what kubeadm reads on a master, at its birth and after it.
	configPath = runner.StateDir + "/kubeadm.yaml"

	// Done is there when kubeadm has made a node of the host.
	Done = runner.StateDir + "/kubeadm"

	kubeletConfig = "/var/lib/kubelet/config.yaml"

	// superAdmin is a kubeconfig that no role binding can lock out. kubeadm grants the administrators their role with it.
	superAdmin = "/etc/kubernetes/super-admin.conf"

	// Certificates and kubeconfigs of masters are kubexm's own.
	initCommand = "init --skip-phases=preflight,certs,kubeconfig/admin,kubeconfig/controller-manager,kubeconfig/scheduler,addon,show-join-command" +
		" --config " + configPath + " && rm -f " + superAdmin + made
	joinCommand = "join --skip-phases=preflight,control-plane-prepare/certs,control-plane-prepare/kubeconfig --config " + joinPath + made
)

// Programs puts kubeadm, and on masters kubectl, on the host.
func Programs(c *cluster.Cluster, host string) step.Step {
	u := step.Upload{What: "kubeadm", Store: c.Store}
	for _, n := range []string{"kubeadm", "kubectl"} {
		if slices.Contains(c.Components(host), n) {
			u.Programs = append(u.Programs, step.Programs{Artifact: c.Artifact(n, host), Dir: path.Dir(program)})
		}
	}
	return step.With(u, step.Options{Limit: step.LimitTransfer})
}

// exclusive runs kubeadm once at a time on a host: one that outlived a lost
// connection is waited for. All its phases can be run again over what is there.
const exclusive = "{ [ -e " + mutex + " ] || (umask 077; : >" + mutex + "); } && flock -w 300 " + mutex + " " + program + " "

// mutex is a file that nobody else can open: whoever can may hold a lock on it.
const mutex = runner.StateDir + "/kubeadm.lock"

// Init makes the control plane of the first master, from its Config.
type Init struct {
	Member string `json:",omitempty"` // the data of the etcd that kubeadm runs; empty: it runs none
	Socket string `json:"-"`          // of the container runtime, as a URL
}

// LocalEtcd is the etcd that kubeadm runs as a static pod.
func LocalEtcd(c *cluster.Cluster) Etcd {
	return Etcd{Local: &localEtcd{image{tag(c.Image("etcd"))}, c.Spec.Etcd.DataDir, args(c.Spec.Etcd.ExtraArgs)}}
}

// tag is the part of an image's reference behind its name.
func tag(ref string) string { return ref[strings.LastIndex(ref, ":")+1:] }

// ExternalEtcd is an etcd that is there already.
func ExternalEtcd(e cluster.EtcdEndpoint) Etcd { return Etcd{External: &e} }

// NewInit returns the step that makes the control plane with the given etcd.
func NewInit(c *cluster.Cluster, etcd Etcd) step.Step {
	init := Init{Socket: plugin.RuntimeOf(c.Spec).Endpoint()}
	if etcd.Local != nil {
		init.Member = etcd.Local.DataDir + "/member"
	}
	return step.With(init, step.Options{Timeout: 10 * time.Minute})
}

func (Init) String() string { return "kubeadm init" }

// Precheck looks for what a finished kubeadm leaves: its mark, unless somebody has
// reset the host since. What was there before is not reset when it fails.
func (i Init) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	signs := []string{Done, runner.ManifestDir + "/kube-apiserver.yaml", kubeletPath}
	if i.Member != "" {
		signs = append(signs, i.Member)
	}
	have, err := r.Exists(ctx, signs...)
	if err != nil || len(have) > 1 && have[0] == Done && have[1] != i.Member {
		return nil, err
	}
	var rollback func(context.Context) error
	if len(have) == 0 {
		rollback = reset(r, i.Socket)
	}
	return &step.Change{
		Diff: "run: kubeadm init --config " + configPath,
		Run: func(ctx context.Context) error {
			return run(ctx, r, initCommand)
		},
		Rollback: rollback,
	}, nil
}

// Join makes a node of a host, a master or a worker. The node's first certificate is made for this one
// join: a kubelet that had to ask for one would wait until the controller manager,
// which has just started, signs it, and after that for what it gave up meanwhile.
type Join struct {
	Node   string
	Config step.Content
	Server string                    // URL of the API server
	CA     step.Content              // by which the API server is checked
	Client func() (*pki.Pair, error) `json:"-"`
	API    kube.Access               `json:"-"`
	Socket string                    `json:"-"` // of the container runtime, as a URL
}

const (
	discoveryPath = "/etc/kubernetes/discovery.conf"
	joinPath      = "/etc/kubernetes/kubeadm-join.yaml"
	bootstrapPath = "/etc/kubernetes/bootstrap-kubelet.conf"
	kubeletPath   = "/etc/kubernetes/kubelet.conf"
	clientPath    = "/var/lib/kubelet/pki/kubelet-client-join.pem"
	currentPath   = "/var/lib/kubelet/pki/kubelet-client-current.pem" // where the kubelet looks, and links to what it renews
)

// NewJoin returns the step that joins a host. A master needs PKI and Config before.
func NewJoin(c *cluster.Cluster, host string) step.Step {
	conf := joinConfiguration{
		TypeMeta: kind("JoinConfiguration"), Discovery: discovery{discoveryFile{discoveryPath}}, NodeRegistration: registration(c, host),
	}
	if c.Host(host).Is(v1alpha1.RoleMaster) {
		conf.ControlPlane, conf.Patches = &controlPlane{apiEndpoint{c.IP(host), c.APIPort()}}, &patches{patchesDir}
	}
	return step.With(Join{
		Node: host, Config: c.YAML(conf), Server: c.Endpoint(), CA: c.Trust(pki.Kubernetes),
		Client: func() (*pki.Pair, error) { return c.Certs.Joining(host) }, API: c.AnyAPI(), Socket: conf.NodeRegistration.CRISocket,
	}, step.Options{Timeout: 10 * time.Minute})
}

func (Join) String() string { return "kubeadm join" }

// Writes is kubeadm's configuration. The certificate that the node joins with is made for
// that one join, and kubexm takes both away after it.
func (j Join) Writes() ([]step.File, error) {
	return []step.File{{Path: joinPath, Content: j.Config, Mode: 0o600}}, nil
}

// Precheck looks for what a finished kubeadm leaves: its mark, the kubelet's own
// credentials, and none of those it started with.
func (j Join) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	done := []string{kubeletPath, kubeletConfig, Done}
	have, err := r.Exists(ctx, append(done, bootstrapPath, discoveryPath, joinPath)...)
	if err != nil || slices.Equal(have, done) {
		return nil, err
	}
	joined := len(have) > 3 && slices.Equal(have[:3], done)
	var rollback func(context.Context) error
	if len(have) == 0 { // what an earlier run has begun may be a member of etcd by now
		rollback = reset(r, j.Socket)
	}
	return &step.Change{
		Diff:     "run: kubeadm join --config " + joinPath + "\n" + string(j.Config),
		Run:      func(ctx context.Context) error { return j.run(ctx, r, joined) },
		Rollback: rollback,
	}, nil
}

// run joins, unless that was done and only cut off before its end, and clears
// away what was needed for it.
func (j Join) run(ctx context.Context, r *runner.Runner, joined bool) error {
	if !joined {
		if err := j.join(ctx, r); err != nil {
			return err
		}
	}
	return r.Remove(ctx, bootstrapPath, discoveryPath, joinPath)
}

func (j Join) join(ctx context.Context, r *runner.Runner) error {
	client, err := step.Kube(r, j.API)
	if err != nil {
		return err
	}
	node, err := kube.ReadObjects([]byte("{apiVersion: v1, kind: Node, metadata: {name: " + j.Node + "}}"))
	if err != nil {
		return err
	}
	pair, err := j.Client()
	if err != nil {
		return err
	}
	found, err := pki.Kubeconfig("kubernetes", j.Server, j.CA, "system:node:"+j.Node, pair)
	if err != nil {
		return err
	}
	// After a power cut the cluster may need this machine's member of etcd, which its kubelet starts.
	if err := client.WaitAPIReady(ctx); err != nil {
		return err
	}
	// A node that a cut-off join has registered would make kubeadm refuse: it restarts.
	if _, err := r.Sh(ctx, "systemctl stop kubelet; rm -f "+kubeletPath+" "+bootstrapPath); err != nil {
		return fmt.Errorf("clearing away an unfinished join: %w", err)
	}
	if err := client.Delete(ctx, node...); err != nil {
		return err
	}
	_, err = r.Change(ctx, "files; keep "+currentPath+"; ln -sfn "+clientPath+" "+currentPath,
		runner.File{Path: joinPath, Data: j.Config, Mode: 0o600},
		runner.File{Path: discoveryPath, Data: []byte(found.Reveal()), Mode: 0o600},
		runner.File{Path: clientPath, Data: slices.Concat(pair.Cert, []byte(pair.Key.Reveal())), Mode: 0o600})
	if err != nil {
		return fmt.Errorf("giving the node its certificate: %w", err)
	}
	return run(ctx, r, joinCommand)
}

// Leftovers ends what a join that was cut off just before its end has left, removes what gives whoever finds it more than anybody needs, and owns what
// every join leaves: the kubelet's first certificate stands in for those that it makes later.
type Leftovers struct{}

func (Leftovers) String() string { return "nothing left of kubeadm join" }

// Owns is all that a join writes, and what Login does. The first master may have none of it, and is not told apart.
func (Leftovers) Owns() ([]string, error) {
	return []string{"path " + joinPath, "path " + discoveryPath, "path " + clientPath, "path " + currentPath, "path " + kubeletPath}, nil
}

// Precheck leaves a join that is not finished alone.
func (Leftovers) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	have, err := r.Exists(ctx, Done, bootstrapPath, discoveryPath, joinPath, superAdmin)
	if err != nil || len(have) < 2 || have[0] != Done {
		return nil, err
	}
	return &step.Change{
		Diff: "- " + strings.Join(have[1:], "\n- "),
		Run:  func(ctx context.Context) error { return r.Remove(ctx, have[1:]...) },
	}, nil
}

// KubeletFlags takes away the flag that kubeadm 1.34 has given the kubelet, and that kubelets from 1.35 on do not know, with which they would not start.
//
// Facts: cmd/kubeadm/app/cmd/phases/upgrade/postupgrade.go of Kubernetes 1.35.
func KubeletFlags(c *cluster.Cluster) []step.Step {
	if c.Minor() < 35 {
		return nil
	}
	const flag = "--pod-infra-container-image"
	return []step.Step{step.Command{
		What:   "kubelet without " + flag,
		Unless: "! grep -qs -e " + flag + " " + runner.KubeadmFlags,
		Run:    "sed -i 's/ *" + flag + "=[^ \"]*//' " + runner.KubeadmFlags,
	}}
}

// Socket has kubeadm's own notes on a node name the container runtime that there is, should it have been another one when the node was made.
func Socket(c *cluster.Cluster) step.Step {
	const notes = runner.KubeletDir + "/instance-config.yaml " + runner.KubeadmFlags
	socket := plugin.RuntimeOf(c.Spec).Endpoint()
	return step.Command{
		What:   "socket of the container runtime",
		Unless: "! cat " + notes + " 2>/dev/null | grep unix:// | grep -qvF " + socket,
		Run:    "for f in " + notes + `; do if [ -e $f ]; then sed -i 's#unix://[^ "]*#` + socket + "#' $f; fi; done",
	}
}

// made notes that kubeadm has done its work, and what static pods it made; it says && before.
const made = " && " + recordPods + " && touch " + Done

// tokens matches bootstrap tokens, which kubeadm init tells.
var tokens = regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)

// run has kubeadm make a node; when it fails, the log lines that explain come along. What it writes for the kubelet is
// noted as kubexm's, which is to keep it: it is not what was there before.
func run(ctx context.Context, r *runner.Runner, line string) error {
	if _, err := r.Change(ctx, "keep "+kubeletConfig+"; { "+exclusive+line+"; } >&2"); err != nil {
		if exit := (*connector.ExitError)(nil); errors.As(err, &exit) {
			exit.Stderr = tokens.ReplaceAllString(exit.Stderr, "(a token)")
		}
		err = fmt.Errorf("%w\n%s", err, step.Journal(context.WithoutCancel(ctx), r, "kubelet"))
		return fault.Advise(err, "look at the host: journalctl -u kubelet, crictl ps -a; --no-rollback keeps everything as it is")
	}
	return nil
}

// reset takes back what kubeadm did on a host, finished or not.
func reset(r *runner.Runner, socket string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := r.Sh(ctx, "{ "+exclusive+"reset --force --cri-socket "+socket+"; } >&2; rm -f "+Done+" "+joinPath+" "+discoveryPath)
		return err
	}
}

// formerPath keeps the old kubeconfig of the kubelet until that was restarted, so that a run that is cut off in between goes on there.
const formerPath = "/etc/kubernetes/kubelet-former.conf"

// Renamed lets the kubeconfig that the kubelet was given call the endpoint by its current name and port: nobody writes it again.
func Renamed(c *cluster.Cluster) step.Step {
	name, port := c.Spec.LoadBalancer.Domain, c.APIPort()
	return step.Command{
		What:   "kubelet calls " + c.EndpointHost(),
		Unless: fmt.Sprintf("! grep -s 'server: https://' %s | grep -qvE 'https://(%s|[0-9.]+|\\[[0-9a-f:]+\\]):%d$'", kubeletPath, regexp.QuoteMeta(name), port),
		Run: fmt.Sprintf(`cp -p %[1]s %[2]s
sed -i -e 's|server: https://[^]/:[]*[a-z][^]/:[]*:|server: https://%[3]s:|' -e 's|\(server: https://.*\):[0-9]*$|\1:%[4]d|' %[1]s
systemctl restart kubelet; rm -f %[2]s`, kubeletPath, formerPath, name, port),
		Restarts: []string{"kubelet"},
	}
}

// OwnKubelet lets the kubelet of a master that calls its own API server, as kubeadm has it, call it where that is now. It reads that when it starts with
// its new address.
func OwnKubelet(c *cluster.Cluster, host string) step.Step {
	ip, to, any := c.IP(host), net.JoinHostPort(c.IP(host), ""), "[0-9.]*:"
	if c.IPv6() {
		any = `\[[0-9a-f:]*\]:`
	}
	return step.Command{
		What:   "kubelet calls " + ip,
		Unless: "! grep -qs 'server: https://" + any + "' " + kubeletPath + " || grep -qsF 'server: https://" + to + "' " + kubeletPath,
		Run:    "sed -i 's|server: https://" + any + "|server: https://" + to + "|' " + kubeletPath,
	}
}
