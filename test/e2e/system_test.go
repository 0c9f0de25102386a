//go:build e2e

package e2e

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubexm/kubexm/test/smoke"
	"github.com/kubexm/kubexm/test/testbed"
)

// TestSystem upgrades a package on all machines of a cluster with a load, which asks for a restart: each machine restarts itself once, one after the other, each node is drained
// before and gets pods afterwards, with hooks around it, and an API server answers all the time where there are several. The second time nothing happens; then all machines are restarted by
// a run that is killed at random moments. E2E_SYSTEM=ROW chooses one row.
func TestSystem(t *testing.T) {
	defer the.shrink(t)
	for _, row := range []int{1, 7, 9, 21} {
		if only := os.Getenv("E2E_SYSTEM"); only != "" && only != strconv.Itoa(row) {
			continue
		}
		t.Run(fmt.Sprint("row", row), func(t *testing.T) {
			defer timed(t)()
			systems(t, row)
		})
	}
}

func systems(t *testing.T, row int) {
	restoreMachines(t)
	the.resize(t, testbed.Rows[row-1].Nodes()+1)
	all := the.nodes
	spare := all[len(all)-1] // takes the pods of the other worker
	the.nodes = all[:len(all)-1]
	defer func() { the.nodes = all }()
	hooks := filepath.Join(the.dir, fmt.Sprint("system-hooks", row))
	note := func(when string) []any {
		return []any{map[string]any{"name": "note", "command": "echo " + when + " $KUBEXM_NODE >> " + hooks}}
	}
	c := newCluster(t, row, where{}, impatient, set("hooks", map[string]any{"beforeNode": note("before"), "afterNode": note("after")}), func(spec map[string]any) {
		spec["hosts"] = append(spec["hosts"].([]any), hostEntry(spare, "worker"))
	})
	the.nodes = slices.Insert(slices.Clone(the.nodes), len(the.nodes)-len(c.balancers()), spare) // beside the other worker
	before := the.snapshots(t)
	c.create(t).ok(t)
	defer func() {
		for _, n := range the.nodes {
			the.on(t, n, dropPackage)
		}
		c.remove(t)
		asBefore(t, before)
	}()
	for _, n := range c.kubelets() {
		must(t, the.bed.Load(t.Context(), n, smoke.Image))
	}
	c.serve(t)
	for _, n := range the.nodes {
		the.on(t, n, makePackage)
	}
	boots := c.boots(t)
	args := []string{"upgrade", "os", "--packages", "kubexm-*", "--yes", "-o", "json"}
	if text := c.run(t, "upgrade", "os", "--packages", "kubexm-*", "--dry-run").ok(t).text(); !strings.Contains(text, "+ package kubexm-e2e 2, was 1") {
		t.Errorf("a dry run says:\n%s", text)
	}
	away := c.answered(t)
	done := c.run(t, args...).ok(t)
	t.Logf("%d of %d steps changed in %.0f s; no API server answered for %s", done.result.Summary.Changed, done.result.Summary.Total, done.took.Seconds(), away(t))
	c.restartedOnce(t, boots, done)
	c.between(t, hooks)
	c.whole(t)
	again := c.run(t, args...).ok(t)
	if s := again.result.Summary; s.OK != s.Total {
		t.Errorf("the second time: %+v", s)
	}
	boots = c.boots(t)
	c.killedRestarts(t)
	for name, is := range c.boots(t) {
		if is == boots[name] {
			t.Errorf("%s was not restarted", name)
		}
	}
	c.uncordoned(t)
	c.whole(t)
	c.unchanged(t)
}

// makePackage installs version 1 of a package, and makes a repository of the host with version 2, after whose installation the machine is to restart.
const makePackage = `set -e; d=/opt/kubexm-e2e; mkdir -p $d
for v in 1 2; do
	p=$d/tree/DEBIAN; rm -rf $d/tree; mkdir -p $p
	printf 'Package: kubexm-e2e\nVersion: %s\nArchitecture: all\nMaintainer: e2e <e2e@example.com>\nDescription: test\n' $v >$p/control
	if [ $v = 2 ]; then printf '#!/bin/sh\ntouch /run/reboot-required\n' >$p/postinst; chmod 755 $p/postinst; fi
	dpkg-deb --build $d/tree $d/kubexm-e2e_$v.deb >/dev/null
done
f=$d/kubexm-e2e_2.deb
{ cat $d/tree/DEBIAN/control; printf 'Filename: ./kubexm-e2e_2.deb\nSize: %s\nSHA256: %s\n' "$(stat -c %s $f)" "$(sha256sum $f | cut -d' ' -f1)"; } >$d/Packages
echo "deb [trusted=yes] file:$d ./" >/etc/apt/sources.list.d/kubexm-e2e.list
dpkg -i $d/kubexm-e2e_1.deb >/dev/null`

// dropPackage takes all of it away.
const dropPackage = `dpkg --purge kubexm-e2e >/dev/null 2>&1; rm -rf /opt/kubexm-e2e /etc/apt/sources.list.d/kubexm-e2e.list /var/lib/apt/lists/*kubexm-e2e*`

// boots are which boots the machines of a cluster are in.
func (c *cluster) boots(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, n := range the.nodes {
		all[n.Name] = strings.TrimSpace(the.on(t, n, "cat /proc/sys/kernel/random/boot_id"))
	}
	return all
}

// restartedOnce wants each machine to be in another boot, restarted by one step, no two at one time, and to have the new package.
func (c *cluster) restartedOnce(t *testing.T, boots map[string]string, o *outcome) {
	t.Helper()
	now := c.boots(t)
	for _, n := range the.nodes {
		if version := strings.TrimSpace(the.on(t, n, "dpkg-query -W -f '${Version}' kubexm-e2e")); now[n.Name] == boots[n.Name] || version != "2" {
			t.Errorf("%s is in boot %s, was in %s, and has version %s", n.Name, now[n.Name], boots[n.Name], version)
		}
	}
	restarting, often := "", map[string]int{}
	for _, e := range o.events {
		if e.What != "machine runs what is installed" {
			continue
		}
		switch e.Status {
		case "started":
			if restarting != "" {
				t.Errorf("%s restarts while %s does", e.Host, restarting)
			}
			restarting = e.Host
		case "changed":
			restarting = ""
			often[e.Host]++
		}
	}
	if len(often) != len(the.nodes) {
		t.Errorf("restarted: %v", often)
	}
	c.uncordoned(t)
}

// uncordoned wants all nodes to be Ready and to get pods.
func (c *cluster) uncordoned(t *testing.T) {
	t.Helper()
	nodes, err := c.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, n := range nodes.Items {
		ready := slices.ContainsFunc(n.Status.Conditions, func(is corev1.NodeCondition) bool {
			return is.Type == corev1.NodeReady && is.Status == corev1.ConditionTrue
		})
		if n.Spec.Unschedulable || !ready {
			t.Errorf("node %s: cordoned: %t, Ready: %t", n.Name, n.Spec.Unschedulable, ready)
		}
	}
}

// between wants hooks to have run once before and once after each node, one node after the other.
func (c *cluster) between(t *testing.T, file string) {
	t.Helper()
	out, err := os.ReadFile(file)
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		if name, is := strings.CutPrefix(lines[i], "before "); !is || lines[i+1] != "after "+name {
			t.Errorf("hooks ran as %q", lines)
			break
		}
	}
	if len(lines) != 2*len(c.kubelets()) {
		t.Errorf("hooks ran as %q", lines)
	}
}

// killedRestarts restarts all machines, in runs that are killed at random moments, and each resumed; machines may be about to restart then.
func (c *cluster) killedRestarts(t *testing.T) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed(t), 0))
	args := []string{"upgrade", "os", "--packages", "kubexm-*", "--reboot", "--yes", "-o", "json"}
	for range 3 {
		p := c.start(t, nil, args...)
		timer := time.AfterFunc(10*time.Second+time.Duration(random.Int64N(int64(time.Minute))), func() { p.signal(syscall.SIGKILL) })
		o := p.wait(t)
		timer.Stop()
		if o.code != 128+int(syscall.SIGKILL) {
			o.ok(t)
			return
		}
		t.Logf("killed after %.1f s", o.took.Seconds())
		time.Sleep(5 * time.Second) // a machine that was told to restart begins to
		for _, n := range the.nodes {
			for begun := time.Now(); ; time.Sleep(time.Second) {
				if _, err := the.bed.SSH(t.Context(), n, "true"); err == nil {
					break
				} else if time.Since(begun) > 3*time.Minute {
					t.Fatalf("%s is not back: %v", n.Name, err)
				}
			}
		}
		if again := "--resume"; !slices.Contains(args, again) {
			args = append(args, again)
		}
	}
	c.run(t, args...).ok(t)
}

// answered asks all API servers, or the address that load balancers share, ten times a second, until the function that it returns tells for how long
// none of them answered at most. Where there are several it must be short.
func (c *cluster) answered(t *testing.T) func(*testing.T) time.Duration {
	t.Helper()
	conf, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	must(t, err)
	conf.TLSClientConfig.ServerName = "kubernetes"
	secure, err := rest.TLSConfigFor(conf)
	must(t, err)
	var at []string
	for _, n := range c.masters() {
		at = append(at, n.Address)
	}
	if c.balancers() != nil {
		at = []string{the.bed.VIP()}
	}
	stop, ended, longest := make(chan struct{}), sync.WaitGroup{}, time.Duration(0)
	ended.Go(func() {
		for last := time.Now(); ; {
			if anyReady(secure, at) {
				last = time.Now()
			}
			longest = max(longest, time.Since(last))
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func(t *testing.T) time.Duration {
		t.Helper()
		close(stop)
		ended.Wait()
		if len(c.masters()) > 1 && longest > 15*time.Second {
			t.Errorf("no API server answered for %s", longest)
		}
		return longest
	}
}

// anyReady asks addresses for an API server that is ready, on new connections.
func anyReady(secure *tls.Config, at []string) bool {
	answers := make(chan bool, len(at))
	for _, a := range at {
		go func() {
			client := &http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: secure.Clone(), DisableKeepAlives: true}}
			answer, err := client.Get("https://" + net.JoinHostPort(a, "6443") + "/readyz")
			if err == nil {
				answer.Body.Close()
			}
			answers <- err == nil && answer.StatusCode == http.StatusOK
		}()
	}
	ready := false
	for range at {
		ready = <-answers || ready
	}
	return ready
}
