package kubeadm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
	"github.com/kubexm/kubexm/pkg/util/diff"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

const (
	patchesDir  = runner.StateDir + "/patches"
	manifestDir = runner.ManifestDir
	madeDir     = runner.StateDir + "/manifests" // the manifests as kubeadm made them
	savedDir    = madeDir + "/old"               // those of before a change, while it is taken back

	// recordPods keeps what kubeadm has just made, to know later what somebody else has changed.
	recordPods = "mkdir -p " + madeDir + " && for p in etcd kube-apiserver kube-controller-manager kube-scheduler; do f=" + manifestDir + "/$p.yaml; " +
		"if [ -e $f ]; then cp -p $f " + madeDir + "/.$p && mv -f " + madeDir + "/.$p " + madeDir + "/$p.yaml; fi; done"
)

// phases are those of kubeadm that make static pods, in the order in which these are changed. Each has the name of the program that it runs.
//
// Facts: https://kubernetes.io/docs/reference/setup-tools/kubeadm/kubeadm-init-phase
var phases = []struct{ pod, phase string }{
	{EtcdPod, "etcd local"},
	{apiServer, "control-plane apiserver"},
	{"kube-controller-manager", "control-plane controller-manager"},
	{"kube-scheduler", "control-plane scheduler"},
}

const apiServer = "kube-apiserver"

// EtcdPod is the static pod of the member of etcd that kubeadm runs.
const EtcdPod = "etcd"

// Reads are the steps that bring what static pods read when they start.
type Reads struct {
	Certs       []step.Step // of API servers, and the authorities of controller managers
	Kubeconfigs step.Step   // of controller managers and schedulers
}

// Config writes what kubeadm reads on a master, and the patches by which each static pod tells in its own environment
// with which configuration it was started.
func Config(c *cluster.Cluster, host string, etcd Etcd, reads Reads) step.Step {
	files := []step.File{{Path: configPath, Content: document(c, host, etcd), Mode: 0o644}}
	digests := digests(c, host, etcd, reads)
	for _, pod := range slices.Sorted(maps.Keys(digests)) {
		patch := templates.Render("kubeadm/patch", struct{ Pod, Digest string }{pod, digests[pod]})
		files = append(files, step.File{Path: patchesDir + "/" + pod + "+strategic.yaml", Content: patch, Mode: 0o644})
	}
	return step.Files{What: "kubeadm configuration", List: files}
}

// digests are the fingerprints, by static pod of a master, of all that it is started with. The names in the API server's
// certificate are not among it: it reads that again when it changes.
func digests(c *cluster.Cluster, host string, etcd Etcd, reads Reads) map[string]string {
	conf := clusterConfig(c, etcd)
	conf.APIServer.CertSANs = nil
	brought := func(steps ...step.Step) string {
		digest, err := step.Digest(steps...)
		c.Check(err)
		return digest
	}
	sum := func(parts ...any) string {
		data, err := json.Marshal(append(parts, conf.KubernetesVersion, c.IP(host)))
		c.Check(err)
		hash := sha256.Sum256(data)
		return hex.EncodeToString(hash[:8])
	}
	all := map[string]string{
		apiServer:                 sum(conf.APIServer, conf.Networking, conf.Etcd.External, brought(reads.Certs...), c.APIPort()),
		"kube-controller-manager": sum(conf.ControllerManager, conf.Networking, conf.ClusterName, brought(append(reads.Certs, reads.Kubeconfigs)...)),
		"kube-scheduler":          sum(conf.Scheduler, brought(reads.Kubeconfigs)),
	}
	if etcd.Local != nil { // it has a version of its own
		conf.KubernetesVersion = ""
		all[EtcdPod] = sum(etcd.Local, c.Trust(pki.Etcd))
	}
	return all
}

// Pods keeps static pods of a master as Config says, once kubeadm has made them: changed arguments,
// volumes and gates, and manifests that somebody has edited, go through the phases of kubeadm that made them.
type Pods struct {
	What    string
	Digests map[string]string // by static pod: with what its process must have been started
	Behind  map[string]string `json:",omitempty"` // the same of pods that are stopped meanwhile, as they do not work without
	Name    string            // of the endpoint
	Detour  string            `json:",omitempty"` // address of another master; empty: there is none
}

// ControlPlane keeps the API server, the controller manager and the scheduler of a master.
func ControlPlane(c *cluster.Cluster, host string, etcd Etcd, reads Reads) step.Step {
	all := digests(c, host, etcd, reads)
	delete(all, EtcdPod)
	return pods(c, host, Pods{What: "control plane", Digests: all})
}

// EtcdMember keeps the member of etcd that kubeadm runs on a master. The API server of the master asks that member alone:
// it is stopped before, so that nobody waits for an answer that it cannot give.
func EtcdMember(c *cluster.Cluster, host string, etcd Etcd, reads Reads) step.Step {
	all := digests(c, host, etcd, reads)
	return pods(c, host, Pods{
		What: "etcd", Digests: map[string]string{EtcdPod: all[EtcdPod]}, Behind: map[string]string{apiServer: all[apiServer]},
	})
}

func pods(c *cluster.Cluster, host string, p Pods) step.Step {
	p.Name = append(c.FormerNames(host), c.Spec.LoadBalancer.Domain)[0]
	others := slices.DeleteFunc(slices.Clone(c.Observed.AnyAPI()), func(h string) bool { return h == host })
	if len(others) > 0 {
		p.Detour = c.IP(others[len(others)-1])
	}
	return step.With(p, step.Options{Timeout: 10 * time.Minute})
}

func (p Pods) String() string { return "static pods of " + p.What }

// look reads the manifests and asks the processes, in one round trip.
func (p Pods) look(ctx context.Context, r *runner.Runner) (files map[string]runner.File, out string, err error) {
	look, paths := runner.Script(scripts, "pods"), []string{Done}
	for _, ph := range phases {
		if p.Digests[ph.pod] != "" {
			look += "running " + ph.pod + " | while read -r d; do echo " + ph.pod + " \"$d\"; done\n"
			paths = append(paths, manifest(ph.pod), madeDir+"/"+ph.pod+".yaml")
		}
	}
	for pod := range p.Behind {
		paths = append(paths, manifest(pod), madeDir+"/"+pod+".yaml")
	}
	if files, out, err = r.Look(ctx, look+"if [ -e "+savedDir+" ]; then echo saved; fi\n", paths...); err != nil {
		return nil, "", fmt.Errorf("looking at static pods: %w", err)
	}
	return files, out, nil
}

// Precheck finds the pods that are not as their manifests should be. One that does not run although its manifest is right differs in nothing: its
// kubelet starts it, as it does with a controller manager that has ended because its API server did.
func (p Pods) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	files, out, err := p.look(ctx, r)
	if err != nil {
		return nil, err
	}
	if _, made := files[Done]; !made { // kubeadm is still to come
		return nil, nil
	}
	var text strings.Builder
	var restarts, differ []string
	for _, ph := range phases {
		if p.Digests[ph.pod] == "" {
			continue
		}
		runs := strings.Contains(out, ph.pod+" KUBEXM_DIGEST=")
		differs := p.gap(ph.pod, files, out)
		if differs == "" || !runs && p.placed(ph.pod, files) {
			continue
		}
		text.WriteString(differs)
		if runs {
			restarts = append(restarts, ph.pod)
		}
		differ = append(differ, ph.pod)
	}
	if text.Len() == 0 && !slices.Contains(strings.Fields(out), "saved") {
		return nil, nil
	}
	if text.Len() == 0 {
		return &step.Change{Diff: "- " + savedDir, Run: func(ctx context.Context) error {
			_, err := r.Sh(ctx, "rm -rf "+savedDir)
			return err
		}}, nil
	}
	for pod := range p.Behind {
		restarts = append(restarts, pod)
	}
	return &step.Change{
		Diff: text.String(), Restarts: restarts,
		Run:    func(ctx context.Context) error { return p.renew(ctx, r, differ) },
		Verify: func(ctx context.Context) error { return p.verify(ctx, r, differ) },
		Rollback: func(ctx context.Context) error {
			_, err := r.ChangeWith(ctx, p.inputs()+runner.Script(scripts, "pods"), "rm -rf $K/old; files; back", p.saved(differ, files)...)
			return err
		},
	}, nil
}

// saved are the manifests that pods had, and those behind them, for back: what came after them may fail when renew has long ended.
func (p Pods) saved(differ []string, was map[string]runner.File) (all []runner.File) {
	for _, pod := range slices.Concat(differ, slices.Collect(maps.Keys(p.Behind))) {
		for _, at := range []string{madeDir + "/" + pod + ".yaml", manifest(pod)} {
			if f, there := was[at]; there {
				all = append(all, runner.File{Path: savedDir + "/" + pod + ".yaml", Data: f.Data, Mode: 0o600})
				break
			}
		}
	}
	return all
}

// verify checks that pods which were changed are and run as they should.
func (p Pods) verify(ctx context.Context, r *runner.Runner, differ []string) error {
	files, out, err := p.look(ctx, r)
	for _, pod := range differ {
		if gap := p.gap(pod, files, out); err == nil && gap != "" {
			err = fmt.Errorf("%s is not as it should be:\n%s", pod, gap)
		}
	}
	return err
}

// placed reports whether the manifest of a static pod is the one with which it should run.
func (p Pods) placed(pod string, files map[string]runner.File) bool {
	is := files[manifest(pod)].Data
	return bytes.Contains(is, []byte(p.Digests[pod])) && bytes.Equal(is, files[madeDir+"/"+pod+".yaml"].Data)
}

// gap says how a static pod differs from what is wanted; empty: it does not.
func (p Pods) gap(pod string, files map[string]runner.File, out string) (text string) {
	at := manifest(pod)
	is, there := files[at]
	made, known := files[madeDir+"/"+pod+".yaml"]
	switch {
	case !there:
		text += "+ " + at + "\n"
	case known && !bytes.Equal(is.Data, made.Data):
		text += diff.Unified(at, string(is.Data), string(made.Data))
	}
	var have []string
	for l := range strings.Lines(out) {
		if d, ok := strings.CutPrefix(strings.TrimSpace(l), pod+" KUBEXM_DIGEST="); ok {
			have = append(have, d)
		}
	}
	if !slices.Equal(have, []string{p.Digests[pod]}) {
		text += fmt.Sprintf("%s: KUBEXM_DIGEST %q -> %q\n", pod, strings.Join(have, " "), p.Digests[pod])
	}
	return text
}

func manifest(pod string) string { return manifestDir + "/" + pod + ".yaml" }

//go:embed scripts/*.sh
var scripts embed.FS

// inputs are those of the script.
func (p Pods) inputs() string {
	return runner.Inputs("M", manifestDir, "K", madeDir, "NAME", p.Name, "DETOUR", p.Detour, "CONFIG", configPath,
		"PHASE", strings.TrimSpace(exclusive)+" init phase")
}

// renew has kubeadm make manifests again, and waits until all processes of the step run, as the manifests say. Pods that do not
// work without them are stopped first, and come after.
func (p Pods) renew(ctx context.Context, r *runner.Runner, differ []string) error {
	want := maps.Clone(p.Digests)
	maps.Copy(want, p.Behind)
	var stop, renew, wait strings.Builder
	for _, ph := range phases {
		_, behind := p.Behind[ph.pod]
		if !behind && !slices.Contains(differ, ph.pod) {
			continue
		}
		if behind {
			fmt.Fprintf(&stop, "stop %s\n", ph.pod)
		}
		one := fmt.Sprintf("was=$(pids %[1]s); renew %[1]s '%[2]s' || was=\n", ph.pod, ph.phase)
		until := fmt.Sprintf("wait_ %s %s \"$%s\"\n", ph.pod, want[ph.pod], "was_"+strings.ReplaceAll(ph.pod, "-", "_"))
		one += "was_" + strings.ReplaceAll(ph.pod, "-", "_") + "=$was\n"
		if p.Behind != nil { // one after the other
			one, until = one+until, ""
		}
		renew.WriteString(one)
		wait.WriteString(until)
	}
	detour := ""
	if p.Behind != nil || slices.Contains(differ, apiServer) {
		detour = "detour\n"
	}
	script := detour + stop.String() + renew.String() + wait.String() + "rm -rf $K/old"
	if _, err := r.ChangeWith(ctx, p.inputs()+runner.Script(scripts, "pods"), script); err != nil {
		for _, pod := range differ {
			err = fmt.Errorf("%w\n%s", err, lastLog(context.WithoutCancel(ctx), r, pod))
		}
		return fault.Advise(err, "look at the host: crictl ps -a, journalctl -u kubelet; --no-rollback keeps everything as it is")
	}
	return nil
}

// lastLog returns the last lines of what a static pod has said, for error messages.
func lastLog(ctx context.Context, r *runner.Runner, pod string) string {
	out, err := r.Sh(ctx, "f=$(ls -t /var/log/pods/kube-system_"+pod+"-*/"+pod+"/*.log 2>/dev/null | head -n 1); [ -z \"$f\" ] || tail -n 5 \"$f\"")
	if err != nil || out == "" {
		return "no log lines of " + pod
	}
	return "last log lines of " + pod + ":\n" + out
}

// Renewed is the step that waits until a kubelet of another version has started static pods again.
type Renewed struct {
	Processes []string // their names
}

// PodsRenewed waits for the static pods of the control plane on a master, and its member of etcd.
func PodsRenewed() step.Step {
	var names []string
	for _, ph := range phases {
		names = append(names, ph.pod)
	}
	return step.With(Renewed{names}, step.Options{Timeout: 2 * time.Minute})
}

func (Renewed) String() string { return "wait for static pods that start again" }

// Precheck asks the processes.
func (w Renewed) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	library := runner.Script(scripts, "pods")
	var ask, wait strings.Builder
	for _, p := range w.Processes {
		fmt.Fprintf(&ask, "if ! renewed %s; then echo %[1]s; fi\n", p)
		fmt.Fprintf(&wait, "until_ renewed %s\n", p)
	}
	out, err := r.Sh(ctx, library+ask.String())
	if err != nil || out == "" {
		return nil, err
	}
	return &step.Change{
		Diff: "wait: " + strings.Join(strings.Fields(out), ", "), Verify: step.Verified,
		Run: func(ctx context.Context) error { _, err := r.Sh(ctx, library+wait.String()); return err },
	}, nil
}

// Running is the step that waits until the static pods of a master's control plane run: a controller manager or a scheduler that leads ends when
// its API server is away for ten seconds, and its kubelet may take a while to start it again.
type Running struct {
	Pods map[string]string // their digests
}

// ControlPlaneRuns waits for what ControlPlane keeps.
func ControlPlaneRuns(c *cluster.Cluster, host string, etcd Etcd, reads Reads) step.Step {
	all := digests(c, host, etcd, reads)
	delete(all, EtcdPod)
	return step.With(Running{all}, step.Options{Timeout: 20 * time.Minute})
}

func (Running) String() string { return "wait for static pods" }

// Precheck asks the processes.
func (w Running) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	var ask, wait strings.Builder
	var pods []string
	for _, ph := range phases {
		if want := w.Pods[ph.pod]; want != "" {
			fmt.Fprintf(&ask, "if ! started %s %s ''; then echo %s; fi\n", ph.pod, want, ph.pod)
			fmt.Fprintf(&wait, "wait_ %s %s ''\n", ph.pod, want)
			pods = append(pods, ph.pod)
		}
	}
	library := runner.Script(scripts, "pods")
	out, err := r.Sh(ctx, "if [ -e "+Done+" ]; then\n"+library+ask.String()+"fi")
	if err != nil || out == "" {
		return nil, err
	}
	return &step.Change{
		Diff: "wait: " + strings.Join(strings.Fields(out), ", "), Verify: step.Verified,
		Run: func(ctx context.Context) error {
			_, err := r.Sh(ctx, library+"MINUTES=6\n"+wait.String()) // kubelets wait up to five before they start a container again
			if err != nil {
				for _, pod := range pods {
					err = fmt.Errorf("%w\n%s", err, lastLog(context.WithoutCancel(ctx), r, pod))
				}
			}
			return fault.Advise(err, "look at the host: crictl ps -a, journalctl -u kubelet")
		},
	}, nil
}
