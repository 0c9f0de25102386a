package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	kubexm "github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/addon"
	"github.com/kubexm/kubexm/pkg/step/controlplane"
	"github.com/kubexm/kubexm/pkg/step/flannel"
	"github.com/kubexm/kubexm/test/testbed"
)

// baseline is what the scripts need.
type baseline struct {
	files       string // the directory of what was laid out for them
	environment []string
}

// run runs a script: baseline makes the cluster by hand, rolling changes it.
func (b *baseline) run(ctx context.Context, script string, more ...string) (used, error) {
	cmd := exec.CommandContext(ctx, "bash", "test/bench/"+script+".sh")
	cmd.Env = slices.Concat(os.Environ(), b.environment, more)
	return measure(cmd)
}

// kubectl runs the one that was laid out.
func (b *baseline) kubectl(ctx context.Context, kubeconfig string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(b.files, "programs", "kubectl"), append([]string{"--kubeconfig", kubeconfig}, args...)...)
}

// prepare fills kubexm's store, and lays out the same files for the script.
func (b *bench) prepare(ctx context.Context, file string, row int) (*baseline, error) {
	mirror, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- b.testbed.Serve(mirror, b.builder, nil) }()
	c, err := b.planned(ctx, file)
	if err != nil {
		return nil, err
	}
	if err := fill(ctx, c); err != nil {
		return nil, err
	}
	stop()
	<-ended
	files := filepath.Join(b.dir, fmt.Sprintf("files%d", row))
	for _, lay := range []func(context.Context, *kubexm.Cluster, string) error{layPrograms, layImages, layManifests} {
		if err := lay(ctx, c, files); err != nil {
			return nil, err
		}
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	etcd, worker := c.Image("etcd"), c.Nodes()[len(c.Nodes())-1]
	var masters []string
	for _, m := range c.Masters() {
		masters = append(masters, c.IP(m))
	}
	return &baseline{files, []string{
		fmt.Sprint("ROW=", row), "MASTERS=" + strings.Join(masters, " "), "WORKER=" + c.IP(worker), "KEY=" + b.testbed.KeyFile(), "KNOWN=" + b.testbed.KnownHosts(),
		"FILES=" + files, "PAUSE=" + c.Image("pause"), "VERSION=" + c.Spec.Kubernetes.Version, "ETCD=" + etcd[strings.LastIndex(etcd, ":")+1:], "ETCD_IMAGE=" + etcd,
		"OUT=" + filepath.Join(b.dir, "admin.conf"),
	}}, nil
}

// fill fetches everything that a cluster needs into the store.
func fill(ctx context.Context, c *kubexm.Cluster) (err error) {
	for _, item := range kubexm.AllNeeds(c) {
		if item.Image != "" {
			err = c.Store.Pull(ctx, item.Image, item.Arch, nil)
		} else {
			_, err = c.Store.Fetch(ctx, item.Artifact, nil)
		}
		if err != nil {
			return err
		}
	}
	return c.Err()
}

// planned is the cluster of a configuration, with the facts of the first node for all.
func (b *bench) planned(ctx context.Context, file string) (*kubexm.Cluster, error) {
	conf, _, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	nodes, err := b.testbed.Nodes()
	if err != nil {
		return nil, err
	}
	r, err := b.connect(ctx, nodes[0])
	if err != nil {
		return nil, err
	}
	defer r.Close()
	of, err := r.Facts(ctx)
	if err != nil {
		return nil, err
	}
	facts := map[string]*runner.Facts{}
	for i := range conf.Spec.Hosts {
		facts[conf.Spec.Hosts[i].Name] = of
	}
	store, err := resource.Open(filepath.Join(b.workdir(), "packages"), source.Config{Mirrors: conf.Spec.Source.Mirrors})
	if err != nil {
		return nil, err
	}
	return kubexm.New(conf, filepath.Join(b.dir, "planned"), store, facts), nil
}

func (b *bench) connect(ctx context.Context, n testbed.Node) (*runner.Runner, error) {
	conn, err := connector.SSH(ctx, connector.SSHConfig{Name: n.Name, Address: n.Address, PrivateKeyPath: b.testbed.KeyFile(), KnownHosts: b.testbed.KnownHosts()})
	if err != nil {
		return nil, err
	}
	return runner.New(n.Name, conn), nil
}

// layPrograms links programs into runtime/ and programs/.
func layPrograms(ctx context.Context, c *kubexm.Cluster, files string) error {
	dirs := map[string]string{
		"containerd": "runtime/usr/local/bin", "runc": "runtime/usr/local/bin", "crictl": "runtime/usr/local/bin", "cni-plugins": "runtime/opt/cni/bin",
	}
	for _, name := range c.Components(c.FirstMaster()) {
		members, err := c.Store.Programs(ctx, c.Artifact(name, c.FirstMaster()))
		if err != nil {
			return err
		}
		for _, m := range members {
			dir := filepath.Join(files, "programs")
			if d := dirs[name]; d != "" {
				dir = filepath.Join(files, d)
			}
			if err := copyProgram(m, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyProgram(m resource.File, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(m.Path)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, m.Name), data, m.Mode)
}

// layImages writes the archives of images that the script imports.
func layImages(ctx context.Context, c *kubexm.Cluster, files string) error {
	common := []string{c.Image("coredns"), c.Image("flannel"), c.Image("flannel-cni")}
	sets := map[string][]string{"node": append(common, c.Image("pause"))}
	if c.Spec.Kubernetes.Type == v1alpha1.TypeKubeadm {
		common = append(common, c.Image("kube-proxy"))
		sets = map[string][]string{"node": common, "worker": append(common, c.Image("pause")), "control": {
			c.Image("pause"), c.Image("etcd"),
			c.Image("kube-apiserver"), c.Image("kube-controller-manager"), c.Image("kube-scheduler"),
		}}
	}
	if err := os.MkdirAll(filepath.Join(files, "images"), 0o755); err != nil {
		return err
	}
	for name, refs := range sets {
		f, err := os.Create(filepath.Join(files, "images", name+".tar"))
		if err != nil {
			return err
		}
		defer f.Close()
		if err := c.Store.Export(ctx, f, c.Arch(c.FirstMaster()), refs...); err != nil {
			return err
		}
	}
	return nil
}

// layManifests writes the objects that both sides apply.
func layManifests(_ context.Context, c *kubexm.Cluster, files string) error {
	dir := filepath.Join(files, "manifests")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, s := range map[string]step.Step{"flannel": flannel.Steps(c)[0], "coredns": addon.CoreDNS(c), "rbac": controlplane.RBAC(c)} {
		apply, ok := s.(step.Apply)
		if !ok {
			return fmt.Errorf("%s is not applied", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), apply.Objects, 0o644); err != nil {
			return err
		}
	}
	return nil
}
