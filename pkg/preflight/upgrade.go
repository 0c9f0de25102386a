package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/step"
	etcdstep "github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// upgradeChecks look at a cluster before a part of its control plane changes its version. An error says that they could not look.
var upgradeChecks = []struct {
	name     string
	severity Severity // of findings without one
	look     func(context.Context, *Look) ([]Finding, error)
}{
	{"upgrade-health", SeverityError, upgradeHealth},
	{"skew", SeverityError, skew},
	{"certificates", SeverityWarning, certificates},
	{"removed-apis", SeverityError, removedAPIs},
	{"deprecated-apis", SeverityWarning, deprecatedAPIs},
	{"disruptions", SeverityWarning, disruptions},
	{"webhooks", SeverityError, webhooks},
	{"snapshot-space", SeverityError, snapshotSpace},
}

// upgrade makes these checks, side by side. What they find does not stop an upgrade that has begun, or the way back: to leave it half done is no
// better, and what is broken may be what the end of it repairs.
func (l *Look) upgrade(ctx context.Context) ([]Finding, error) {
	if !l.Cluster.Upgrades() {
		return nil, nil
	}
	_, begun := l.Cluster.Runs()
	l.uses = shared(func() apiUses { return l.apiUses(ctx) })
	found := make([][]Finding, len(upgradeChecks))
	var all sync.WaitGroup
	for i, ch := range upgradeChecks {
		if slices.Contains(l.Skip, ch.name) {
			continue
		}
		all.Go(func() {
			of, err := ch.look(ctx, l)
			if err != nil {
				of = append(of, Finding{Found: "this could not be checked: " + err.Error(), Needed: "an answer, to know what the upgrade would break", Fix: cmp.Or(fault.Advice(err), "see what is wrong: kubexm status"+l.Which)})
			}
			for j := range of {
				f := &of[j]
				f.Host, f.Check, f.Severity, f.Found = cmp.Or(f.Host, plan.API), ch.name, cmp.Or(f.Severity, ch.severity), human.Line(f.Found)
				if begun || l.Onward {
					f.Severity = SeverityWarning
				}
			}
			found[i] = of
		})
	}
	all.Wait()
	return slices.Concat(found...), ctx.Err()
}

// shared asks once what several checks want to know. They wait for a channel, not for a lock as with sync.OnceValue: so time goes on in tests.
func shared[T any](ask func() T) func() T {
	var once sync.Once
	var is T
	done := make(chan struct{})
	return func() T {
		once.Do(func() { go func() { is = ask(); close(done) }() })
		<-done
		return is
	}
}

// client reaches any API server that is ready.
func (l *Look) client() (*kube.Client, error) {
	if l.Cluster.Observed.AnyAPI() == nil {
		return nil, errors.New("no API server is ready")
	}
	return step.Kube(l.Hosts[plan.API], l.Cluster.AnyAPI())
}

// upgradeHealth finds what is not well by what was observed.
func upgradeHealth(_ context.Context, l *Look) (found []Finding, _ error) {
	c := l.Cluster
	if len(c.Observed.Members) == 0 && !c.ExternalEtcd() {
		found = append(found, Finding{Found: "no member of etcd answers", Needed: "an etcd that is healthy: a snapshot of it is taken first", Fix: "see what is wrong: kubexm status" + l.Which})
	}
	for _, m := range c.Observed.Members {
		if !m.Healthy && !passes(c, m) {
			name := "etcd"
			if m.Host == "" {
				name = "member " + cmp.Or(m.Name, fmt.Sprintf("%x", m.ID)) + " of etcd"
			}
			found = append(found, Finding{Host: m.Host, Found: name + " is not healthy: " + m.Err, Needed: "members of etcd that are all healthy, and no alarm", Fix: cure(c, m)})
		}
	}
	fresh, _ := c.SplitMasters()
	for _, a := range c.Observed.API {
		_, node := c.Observed.Nodes[a.Host]
		if a.Err != "" && !slices.Contains(slices.Concat(c.Missing(), c.Leaving()), a.Host) && (node || !slices.Contains(fresh, a.Host)) {
			found = append(found, Finding{Host: a.Host, Found: "kube-apiserver is not ready: " + a.Err, Needed: "API servers that are all ready", Fix: logs("kube-apiserver", c.Kubeadm())})
		}
	}
	for _, h := range c.Missing() {
		found = append(found, Finding{
			Host: h, Severity: SeverityWarning, Found: "it cannot be reached, and is left out (--allow-missing)", Needed: "all hosts: this one keeps its version until it is back",
			Fix: "bring it up, and run kubexm apply" + l.Which + " again",
		})
	}
	for _, h := range c.Nodes() {
		if n, joined := c.Observed.Nodes[h]; joined && !n.Ready {
			found = append(found, Finding{
				Host: h, Severity: SeverityWarning, Found: fmt.Sprintf("the node is %s: %s", n.Status(), n.Reason), Needed: "nodes that are Ready: a drain waits until the kubelet has ended the pods",
				Fix: "see why: kubectl describe node " + h + ", and journalctl -u kubelet there",
			})
		}
	}
	return found, nil
}

// passes reports whether a member of etcd is not to be well: its host is left out, leaves the cluster, or has not joined etcd yet.
func passes(c *cluster.Cluster, m cluster.EtcdMember) bool {
	known := slices.ContainsFunc(c.Observed.Members, func(m cluster.EtcdMember) bool { return m.ID != 0 })
	return slices.Contains(slices.Concat(c.Missing(), c.Leaving()), m.Host) || known && m.ID == 0 && !c.FactsOf(m.Host).Runs("etcd")
}

// cure is what to do about a member that is not healthy.
func cure(c *cluster.Cluster, m cluster.EtcdMember) string {
	switch {
	case strings.Contains(m.Err, "NOSPACE"):
		return "make space: kubexm etcd defrag"
	case strings.Contains(m.Err, "CORRUPT"):
		return "find the member with other data than the rest (etcdctl endpoint hashkv --cluster), and replace it; then: etcdctl alarm disarm"
	case m.Host == "":
		return "if it is gone for good: etcdctl member remove " + fmt.Sprintf("%x", m.ID)
	}
	return logs("etcd", c.Spec.Etcd.Type == v1alpha1.TypeKubeadm)
}

// logs says how to see why a program does not work.
func logs(program string, pod bool) string {
	if pod {
		return "see why: crictl ps -a --name " + program + ", and crictl logs of that container"
	}
	return "see why: journalctl -u " + program
}

// skew finds programs that do not work together on the way. To skip it does not help: such a step is refused in any case.
func skew(_ context.Context, l *Look) (found []Finding, _ error) {
	for _, s := range l.Cluster.Skews() {
		found = append(found, Finding{Host: s.Host, Found: s.Why, Needed: "versions that work together (https://kubernetes.io/releases/version-skew-policy)", Fix: s.Fix})
	}
	return found, nil
}

// disruptions finds what keeps nodes from being drained, where some are to be, in this run or in a later one on the way.
func disruptions(ctx context.Context, l *Look) (found []Finding, _ error) {
	c := l.Cluster
	nodes := slices.DeleteFunc(c.Nodes(), func(h string) bool { _, joined := c.Observed.Nodes[h]; return !joined || c.Holds(h) })
	if !c.Passing {
		nodes = c.Drains(nodes)
	}
	if len(nodes) == 0 {
		return nil, nil
	}
	client, err := l.client()
	if err != nil {
		return nil, err
	}
	budgets, err := client.Blocking(ctx)
	for _, b := range budgets {
		is := b.Status
		found = append(found, Finding{
			Found: fmt.Sprintf("PodDisruptionBudget %s/%s allows no disruption of its %s (%d healthy, %d needed)",
				b.Namespace, b.Name, human.Count(int(is.ExpectedPods), "pod"), is.CurrentHealthy, is.DesiredHealthy),
			Needed: "one that allows a disruption: until then nodes with such pods cannot be drained",
			Fix:    fmt.Sprintf("get its pods healthy, add replicas, or loosen it: kubectl -n %s describe pdb %s", b.Namespace, b.Name),
		})
	}
	if err != nil {
		return found, err
	}
	lone, err := l.lone(ctx, client, nodes)
	return append(found, lone...), err
}

// lone finds pods on nodes that nothing would start elsewhere, or whose data would be lost: such a node is not drained, unless that may be.
func (l *Look) lone(ctx context.Context, client *kube.Client, nodes []string) (found []Finding, _ error) {
	var all errgroup.Group
	all.SetLimit(32)
	pods, how := make([]kube.Pods, len(nodes)), l.Cluster.Spec.Upgrade.Drain
	for i, h := range nodes {
		all.Go(func() (err error) { pods[i], err = client.PodsToEvict(ctx, h); return err })
	}
	err := all.Wait()
	for i, h := range nodes {
		if local := pods[i].Local; local != nil && !*how.DeleteEmptyDir {
			found = append(found, Finding{
				Host: h, Severity: SeverityError, Found: "pods with data in volumes of type emptyDir, which a drain deletes: " + human.Names(local, 10),
				Needed: "none of them: the node is drained", Fix: "save the data and delete the pods, or let it be lost: spec.upgrade.drain.deleteEmptyDir",
			})
		}
		if pods[i].Lone == nil {
			continue
		}
		f := Finding{
			Host: h, Severity: SeverityError, Found: "pods without a controller, which nothing would start on another node: " + human.Names(pods[i].Lone, 10),
			Needed: "none of them: the node is drained", Fix: "move or delete them, or let them be lost: spec.upgrade.drain.force",
		}
		if how.Force {
			f.Severity, f.Needed, f.Fix = SeverityWarning, "none of them: spec.upgrade.drain.force deletes them", "move those that are still needed"
		}
		found = append(found, f)
	}
	return found, err
}

// webhooks finds those that make the API server refuse what they match.
func webhooks(ctx context.Context, l *Look) (found []Finding, _ error) {
	client, err := l.client()
	if err != nil {
		return nil, err
	}
	dead, err := client.DeadWebhooks(ctx)
	for _, w := range dead {
		found = append(found, Finding{
			Found:  fmt.Sprintf("webhook %s of %s must answer (failurePolicy: Fail), but its service %s/%s %s", w.Webhook, w.Config, w.Namespace, w.Service, w.Why),
			Needed: "a ready endpoint: without one, writes that the webhook matches fail, also while nodes are drained",
			Fix:    fmt.Sprintf("see its pods: kubectl -n %s get pods,endpointslices; if nothing needs it any more, delete the %s", w.Namespace, w.Config),
		})
	}
	return found, err
}

// snapshotSpace looks for space for the snapshot of etcd, unless it was taken by the run that has begun. Of an external etcd none is taken.
func snapshotSpace(_ context.Context, l *Look) (found []Finding, _ error) {
	if l.Cluster.ExternalEtcd() {
		return []Finding{{
			Severity: SeverityWarning, Found: "etcd is external: kubexm takes no snapshot of it", Needed: "a snapshot of your own, from before the upgrade",
			Fix: "take one, for example with etcdctl snapshot save",
		}}, nil
	}
	var largest int64
	for _, m := range l.Cluster.Observed.Members {
		largest = max(largest, m.DBSize)
	}
	file, need := etcdstep.SnapshotFile(l.Cluster), largest+largest/10
	free, err := resource.FreeSpace(l.Cluster.Dir)
	if _, begun := l.Cluster.Runs(); err == nil && free < need && (!begun || etcd.Whole(file) != nil) {
		found = append(found, Finding{
			Host: plan.Control, Found: fmt.Sprintf("%s free in %s", human.Bytes(free), l.Cluster.Dir),
			Needed: fmt.Sprintf("%s for the snapshot of etcd that is taken first", human.Bytes(need)), Fix: "free space there; snapshots of earlier upgrades are in " + filepath.Dir(file),
		})
	}
	return found, err
}

// ofUpgrade reports whether a check is one of those of an upgrade.
func ofUpgrade(check string) bool {
	for _, ch := range upgradeChecks {
		if ch.name == check {
			return true
		}
	}
	return false
}
