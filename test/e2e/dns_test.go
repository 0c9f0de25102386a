//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestDNS has a pod resolve names that no cache knows yet while the DNS server is restarted, and the caches of nodes are: it always has an answer. It has answers again after the cache of
// its node was killed. Caches go, and come back.
func TestDNS(t *testing.T) {
	the.resize(t, 2)
	c := newCluster(t, 1, where{}, impatient)
	c.also = func() {
		c.serve(t)
		apps := c.client(t).AppsV1()
		guests, err := c.client(t).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=guests"})
		must(t, err)
		guest := net.JoinHostPort(guests.Items[0].Status.PodIP, "8080")
		name := "10-$(shuf -i 1-250 -n 1)-$(shuf -i 1-250 -n 1)-1.default.pod.cluster.local."
		resolves := func(what string, meanwhile func()) {
			t.Helper()
			asks := c.ask(t, guest+"/resolve?name="+name, 2)
			meanwhile()
			time.Sleep(3 * time.Second)
			t.Logf("names while %s: %s", what, asks(t))
		}
		again := fmt.Appendf(nil, `{"spec": {"template": {"metadata": {"annotations": {"restarted": "%d"}}}}}`, time.Now().Unix())
		resolves("the DNS server is restarted", func() {
			_, err := apps.Deployments("kube-system").Patch(t.Context(), "coredns", types.MergePatchType, again, metav1.PatchOptions{})
			must(t, err)
			c.until(t, "the DNS server is restarted", func() (bool, error) {
				is, err := apps.Deployments("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{})
				return err == nil && is.Status.ObservedGeneration == is.Generation && is.Status.UpdatedReplicas == 2 && is.Status.Replicas == 2 && is.Status.ReadyReplicas == 2, err
			})
		})
		resolves("the caches of nodes are restarted", func() {
			_, err := apps.DaemonSets("kube-system").Patch(t.Context(), "node-local-dns", types.MergePatchType, again, metav1.PatchOptions{})
			must(t, err)
			c.until(t, "caches are restarted", func() (bool, error) {
				is, err := apps.DaemonSets("kube-system").Get(t.Context(), "node-local-dns", metav1.GetOptions{})
				return err == nil && is.Status.ObservedGeneration == is.Generation && is.Status.UpdatedNumberScheduled == 2 && is.Status.NumberReady == 2, err
			})
		})
		cache := byFamily("169.254.25.10", "fd69:254:25::10")
		node := the.node(t, guests.Items[0].Spec.NodeName)
		// Questions that went to the one that was killed may take until their client asks another server: those after the first answer may not.
		the.on(t, node, `pid=$(crictl inspect -o go-template --template '{{.info.pid}}' "$(crictl ps -q --name node-cache)"); kill -9 "$pid"
i=0; until ss -lun | grep -qF '`+net.JoinHostPort(cache, "53")+` ' && ! kill -0 "$pid" 2>/dev/null; do i=$((i + 1)); [ $i -lt 300 ] || exit 1; sleep 0.1; done
i=0; until curl -sf -m 2 -o /dev/null "http://`+guest+`/resolve?name=`+name+`"; do i=$((i + 1)); [ $i -lt 10 ] || exit 1; done`)
		resolves("the cache is back that was killed", func() {})

		must(t, apps.Deployments("default").Delete(t.Context(), "guests", metav1.DeleteOptions{}))
		for _, enabled := range []bool{false, true} {
			c.change(t, set("dns.nodeLocalDNS.enabled", enabled))
			if enabled {
				for _, n := range the.nodes { // as after a boot
					the.on(t, n, "ip addr flush dev lo to "+cache)
				}
			}
			c.run(t, "apply", "--yes").ok(t)
			c.unchanged(t)
			c.whole(t)
		}
	}
	cycle(t, c)
}

// until waits until something is done.
func (c *cluster) until(t *testing.T, what string, done func() (bool, error)) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		is, err := done()
		if is {
			return
		}
		if time.Since(begin) > 2*time.Minute {
			t.Fatalf("not in time: %s (%v)", what, err)
		}
	}
}
