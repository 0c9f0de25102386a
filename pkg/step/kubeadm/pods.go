package kubeadm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
	"github.com/kubexm/kubexm/pkg/util/diff"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

const (
	patchesDir  = runner.StateDir + "/patches"
	manifestDir = "/etc/kubernetes/manifests"
	madeDir     = runner.StateDir + "/manifests" // the manifests as kubeadm made them

	// recordPods keeps what kubeadm has just made, to know later what somebody else has changed.
	recordPods = "mkdir -p " + madeDir + " && for p in etcd kube-apiserver kube-controller-manager kube-scheduler; do f=" + manifestDir + "/$p.yaml; " +
		"if [ -e $f ]; then cp -p $f " + madeDir + "/.$p && mv -f " + madeDir + "/.$p " + madeDir + "/$p.yaml; fi; done"
)

// phases are those of kubeadm that make static pods, in the order in which these are changed.
//
// Facts: https://kubernetes.io/docs/reference/setup-tools/kubeadm/kubeadm-init-phase
var phases = []struct{ pod, phase, process string }{
	{EtcdPod, "etcd local", "etcd"},
	{"kube-apiserver", "control-plane apiserver", "kube-apiserver"},
	{"kube-controller-manager", "control-plane controller-manager", "kube-controller"}, // the kernel keeps 15 characters
	{"kube-scheduler", "control-plane scheduler", "kube-scheduler"},
}

// EtcdPod is the static pod of the member of etcd that kubeadm runs.
const EtcdPod = "etcd"

// Config writes what kubeadm reads on a master, and the patches by which each static pod tells in its own environment
// with which configuration it was started. reads are the steps that bring what API servers read when they start.
func Config(c *cluster.Cluster, host string, etcd Etcd, reads ...step.Step) step.Step {
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
func digests(c *cluster.Cluster, host string, etcd Etcd, reads []step.Step) map[string]string {
	conf := clusterConfig(c, etcd)
	conf.APIServer.CertSANs = nil
	brought, err := step.Digest(reads...)
	c.Check(err)
	sum := func(parts ...any) string {
		data, err := json.Marshal(append(parts, conf.KubernetesVersion, c.IP(host), c.APIPort()))
		c.Check(err)
		hash := sha256.Sum256(data)
		return hex.EncodeToString(hash[:8])
	}
	all := map[string]string{
		"kube-apiserver":          sum(conf.APIServer, conf.Networking, conf.Etcd.External, brought),
		"kube-controller-manager": sum(conf.ControllerManager, conf.Networking, conf.ClusterName),
		"kube-scheduler":          sum(conf.Scheduler),
	}
	if etcd.Local != nil {
		all[EtcdPod] = sum(etcd.Local)
	}
	return all
}

// Pods keeps static pods of a master as Config says, once kubeadm has made them: changed arguments,
// volumes and gates, and manifests that somebody has edited, go through the phases of kubeadm that made them.
type Pods struct {
	What    string
	Digests map[string]string // by static pod: with what its process must have been started
}

// ControlPlane keeps the API server, the controller manager and the scheduler of a master; reads as with Config.
func ControlPlane(c *cluster.Cluster, host string, etcd Etcd, reads ...step.Step) step.Step {
	all := digests(c, host, etcd, reads)
	delete(all, EtcdPod)
	return step.With(Pods{What: "control plane", Digests: all}, step.Options{Timeout: 5 * time.Minute})
}

// EtcdMember keeps the member of etcd that kubeadm runs on a master.
func EtcdMember(c *cluster.Cluster, host string, etcd Etcd) step.Step {
	all := digests(c, host, etcd, nil)
	return step.With(Pods{What: "etcd", Digests: map[string]string{EtcdPod: all[EtcdPod]}}, step.Options{Timeout: 5 * time.Minute})
}

func (p Pods) String() string { return "static pods of " + p.What }

// running tells of each process of a name, which is the argument, with which digest it was started; pids which they are.
const running = `running() { for p in $(pids "$1"); do tr '\0' '\n' <"$p/environ" | grep '^KUBEXM_DIGEST=' || echo KUBEXM_DIGEST=; done 2>/dev/null; true; }
pids() { for p in /proc/[0-9]*; do if read -r n <"$p/comm" && [ "$n" = "$1" ]; then echo "$p"; fi; done 2>/dev/null; true; }
`

// Precheck reads the manifests and asks the processes, in one round trip.
func (p Pods) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	look, paths := running, []string{Done}
	for _, ph := range phases {
		if p.Digests[ph.pod] != "" {
			look += "running " + ph.process + " | sed 's/^/" + ph.pod + " /'\n"
			paths = append(paths, manifest(ph.pod), madeDir+"/"+ph.pod+".yaml")
		}
	}
	files, out, err := r.Look(ctx, look, paths...)
	if err != nil {
		return nil, fmt.Errorf("looking at static pods: %w", err)
	}
	if _, made := files[Done]; !made { // kubeadm is still to come
		return nil, nil
	}
	var text, script strings.Builder
	var restarts []string
	for _, ph := range phases {
		want := p.Digests[ph.pod]
		if want == "" {
			continue
		}
		differs := p.gap(ph.pod, files, out)
		if differs == "" {
			continue
		}
		text.WriteString(differs)
		if strings.Contains(out, ph.pod+" KUBEXM_DIGEST=") {
			restarts = append(restarts, ph.pod)
		}
		fmt.Fprintf(&script, "renew %s %s '%s' %s\n", ph.pod, ph.process, ph.phase, want)
	}
	if text.Len() == 0 {
		return nil, nil
	}
	return &step.Change{
		Diff: text.String(), Restarts: restarts,
		Run:      func(ctx context.Context) error { return p.renew(ctx, r, script.String()) },
		Rollback: func(ctx context.Context) error { _, err := r.Sh(ctx, running+restorePods); return err },
	}, nil
}

// gap says how a static pod differs from what is wanted; empty: it does not.
func (p Pods) gap(pod string, files map[string]runner.File, out string) (text string) {
	at := manifest(pod)
	is, there := files[at]
	made, known := files[madeDir+"/"+pod+".yaml"]
	switch {
	case !there:
		text += "+ " + at + "\n"
	case known && string(is.Data) != string(made.Data):
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

// renewPods has kubeadm make a manifest anew, and waits until its process was started from it. What was there is kept
// for restorePods. Both leave the manifest that kubeadm made, which is the one that is known.
const renewPods = `renew() { f=` + manifestDir + `/$1.yaml; k=` + madeDir + `; mkdir -p $k/old
if [ -e $k/$1.yaml ]; then cp -p $k/$1.yaml $k/old/$1.yaml; elif [ -e $f ]; then cp -p $f $k/old/$1.yaml; fi
rm -f $k/.was; if [ -e $f ]; then cp -p $f $k/.was; fi; was=$(pids $2)
` + exclusive + `init phase $3 --config ` + configPath + ` >&2
cp -p $f $k/.$1; mv -f $k/.$1 $k/$1.yaml; i=0
if cmp -s $f $k/.was; then was=; fi; rm -f $k/.was
until [ "$(running $2)" = "KUBEXM_DIGEST=$4" ] && [ "$(pids $2)" != "$was" ]; do i=$((i+1))
if [ $i -gt 600 ]; then echo "$1 was not started from its new manifest within 2 minutes" >&2; exit 1; fi; sleep 0.2; done; }
`

const restorePods = `k=` + madeDir + `; for f in $k/old/*.yaml; do if [ -e "$f" ]; then n=${f##*/}
cp -p $f $k/.$n; cp -p $f ` + manifestDir + `/.$n; mv -f $k/.$n $k/$n; mv -f ` + manifestDir + `/.$n ` + manifestDir + `/$n; fi; done; rm -rf $k/old`

func (p Pods) renew(ctx context.Context, r *runner.Runner, script string) error {
	if _, err := r.Change(ctx, running+renewPods+script+"rm -rf "+madeDir+"/old"); err != nil {
		for _, pod := range slices.Sorted(maps.Keys(p.Digests)) {
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
