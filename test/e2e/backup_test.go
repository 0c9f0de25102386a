//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/test/smoke"
	"github.com/kubexm/kubexm/test/testbed"
	"github.com/kubexm/kubexm/test/testbed/build"
)

// TestBackups backs a cluster up to a real S3 server, brings it back to that in place, and then loses all machines and all that the control machine had: the cluster is made again
// on new machines from the backup and its key, as another row of the deployment matrix. Runs are killed at random moments meanwhile. E2E_BACKUP=ROW chooses one.
func TestBackups(t *testing.T) {
	defer the.shrink(t)
	for _, way := range []struct{ row, becomes int }{{1, 1}, {9, 1}, {1, 9}, {7, 7}, {2, 18}} {
		if only := os.Getenv("E2E_BACKUP"); only != "" && only != fmt.Sprintf("%d-%d", way.row, way.becomes) {
			continue
		}
		t.Run(fmt.Sprintf("row%d-row%d", way.row, way.becomes), func(t *testing.T) {
			defer timed(t)()
			disaster(t, way.row, way.becomes)
		})
	}
}

// s3 runs an S3 server on this machine until the test ends, and returns what the configuration says of it.
func s3(t *testing.T) map[string]any {
	t.Helper()
	server := find(t, "versitygw")
	must(t, the.builder.Build(t.Context(), []build.Component{server}))
	dir, ok := the.builder.Built(server)
	if !ok {
		t.Fatal("the S3 server was not built")
	}
	data := t.TempDir()
	must(t, os.Mkdir(filepath.Join(data, "backups"), 0o700))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	at := l.Addr().String()
	must(t, l.Close())
	cmd := exec.Command(filepath.Join(dir, "bin", "versitygw"), "--port", at, "--health", "/health", "--quiet", "posix", data)
	cmd.Env = []string{"ROOT_ACCESS_KEY_ID=e2e", "ROOT_SECRET_ACCESS_KEY=not-very-secret"}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get("http://" + at + "/health")
		if err == nil {
			answer.Body.Close()
			return map[string]any{"s3": map[string]any{"endpoint": "http://" + at, "bucket": "backups", "prefix": "clusters/", "accessKey": "e2e", "secretKey": "not-very-secret"}}
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatal(err)
		}
	}
}

// watchers is within what time clients that watch the API, like the DNS server, ask again after it was away: they wait longer each time, up to half a minute, and as much again by chance (client-go's reflector).
const watchers = 65 * time.Second

// care has systemd run what it does at night.
func (c *cluster) care(t *testing.T) {
	for _, n := range c.masters() { // which are its members of etcd
		sh := func(script string) string {
			t.Helper()
			out, err := the.bed.SSH(t.Context(), n, script)
			if err != nil {
				t.Errorf("%s: %v\n%s", n.Name, err, out)
			}
			return out
		}
		if out := sh("systemctl list-timers --no-pager"); !strings.Contains(out, "kubexm-etcd-backup.timer") || !strings.Contains(out, "kubexm-etcd-defrag.timer") {
			t.Errorf("timers of %s:\n%s", n.Name, out)
		}
		out := sh("for i in 1 2 3; do systemctl start kubexm-etcd-backup.service || journalctl -u kubexm-etcd-backup.service; sleep 1; done; cd /var/backups/kube_etcd; ls -l; cat etcd-backup.prom")
		if strings.Count(out, ".db\n") != 2 || !strings.Contains(out, "kubexm_etcd_backup_success 1\n") {
			t.Errorf("snapshots of %s:\n%s", n.Name, out)
		}
		t.Log(out)
		// Whatever is free, and without waiting for its turn.
		t.Log(sh(`sed -e '/^sleep /d' -e 's/-lt 1048576/-lt 0/' -e 's,-lt $((size / 5)),-lt 0,' /usr/local/libexec/kubexm-etcd-defrag | sh -s`))
	}
	c.run(t, "status").ok(t)
}

func disaster(t *testing.T, row, becomes int) {
	restoreMachines(t)
	the.resize(t, max(testbed.Rows[row-1].Nodes(), testbed.Rows[becomes-1].Nodes()))
	key, local := filepath.Join(t.TempDir(), "recovery.key"), filepath.Join(t.TempDir(), "backups")
	made, err := exec.Command(the.program, "backup", "key", "--out", key).Output()
	must(t, err)
	saved := []edit{
		set("backup.recipients", []any{strings.TrimSpace(string(made))}), set("backup.targets", []any{s3(t), map[string]any{"dir": local}}), set("backup.keep", map[string]any{"last": 2}),
	}
	c := newCluster(t, row, where{}, append(saved, impatient, set("etcd.autoBackup", map[string]any{"enabled": true, "keep": 2}), set("etcd.autoDefrag", map[string]any{"enabled": true}))...)
	c.create(t).ok(t)
	defer func() { c.remove(t) }()
	c.images(t)
	c.serve(t)
	const objects = 1000
	c.fill(t, "before", objects)

	var names []string
	for range 3 {
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // they are named after the second
		o := c.run(t, "backup", "create", "-o", "json").ok(t)
		var taken struct {
			Name, From string
			Size, Etcd int64
			Places     []string
			Expired    []string
		}
		must(t, json.Unmarshal(o.stdout.Bytes(), &taken))
		t.Logf("backup of %d MB of etcd of %s in %.1f s: %d kB in %s, %d removed", taken.Etcd>>20, taken.From, o.took.Seconds(), taken.Size>>10, strings.Join(taken.Places, ", "), len(taken.Expired))
		names = append(names, taken.Name)
	}
	if out := c.run(t, "backup", "list").ok(t).text(); strings.Contains(out, names[0]) || strings.Count(out, names[2]) != 2 {
		t.Errorf("of %q two are to stay in both places:\n%s", names, out)
	}
	drill := c.run(t, "backup", "verify", "latest", "-i", key).ok(t)
	t.Log(drill.text())
	c.run(t, "backup", "verify", "latest").fails(t, fault.ExitUsage, "no key is given")
	if out := c.run(t, "backup", "get", "latest", "configmaps/default/before-7", "deployments/default", "-i", key).ok(t).stdout.String(); !strings.Contains(out, "name: before-7\n") ||
		!strings.Contains(out, "kind: Deployment") || strings.Contains(out, "before-8") || strings.Contains(out, "uid:") {
		t.Errorf("objects of the backup:\n%s", out)
	}
	c.run(t, "backup", "get", "latest", "configmaps/default/before-x", "-i", key).fails(t, fault.ExitUsage, "the backup has no configmaps/default/before-x")
	c.fill(t, "after", 10)

	t.Run("timers", c.care)
	t.Run("in place", func(t *testing.T) {
		defer timed(t)()
		o := c.killedOnce(t, 4*time.Second, "restore", filepath.Join(local, names[2]), "-i", key, "--yes", "-o", "json")
		t.Logf("back in %.0f s", o.took.Seconds())
		time.Sleep(watchers)
		c.back(t, objects)
	})
	if t.Failed() {
		return
	}
	if len(c.masters()) > 2 {
		t.Run("majority", func(t *testing.T) { c.majority(t, objects) })
	}
	if t.Failed() {
		return
	}
	t.Run("disaster", func(t *testing.T) {
		defer timed(t)()
		for _, n := range the.nodes {
			must(t, the.bed.Burn(t.Context(), n))
			must(t, the.bed.Start(t.Context(), n))
		}
		must(t, os.RemoveAll(c.dir()))
		anew := newCluster(t, becomes, where{}, append(saved, impatient)...)
		c.file, c.row, c.members = anew.file, becomes, anew.members
		o := c.killedOnce(t, 25*time.Second, "restore", "latest", "-i", key, "--yes", "-o", "json")
		t.Logf("made again in %.0f s", o.took.Seconds())
		c.images(t)
		c.back(t, objects)
		c.create(t).ok(t) // which nothing stands against any more
		c.run(t, "status", "--verify").ok(t)
	})
}

// majority burns all masters but one, goes on with what that has, and then with new machines in the place of the others.
func (c *cluster) majority(t *testing.T, objects int) {
	defer timed(t)()
	masters := c.masters()
	lost, left := masters[:len(masters)-1], masters[len(masters)-1]
	c.fill(t, "late", 100)
	for _, n := range lost {
		must(t, the.bed.Burn(t.Context(), n))
	}
	whole, err := os.ReadFile(c.file)
	must(t, err)
	c.change(t, func(spec map[string]any) {
		delete(spec, "loadBalancer") // one master has none
		spec["hosts"] = spec["hosts"].([]any)[len(lost):]
	})
	if o := c.run(t, "apply", "--yes", "--force"); o.code == 0 {
		t.Errorf("an apply ends well without a majority of etcd:\n%s", o.text())
	} else {
		t.Log(o.text())
	}
	o := c.killedOnce(t, 8*time.Second, "etcd", "recover", "--from", left.Name, "--force", "--yes", "-o", "json")
	t.Logf("%d of %d members lost: back in %.0f s", len(lost), len(masters), o.took.Seconds())
	there := func() {
		t.Helper()
		list, err := c.client(t).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		n := 0
		for _, o := range list.Items {
			if strings.HasPrefix(o.Name, "before-") || strings.HasPrefix(o.Name, "late-") {
				n++
			}
		}
		if n != objects+100 {
			t.Errorf("%d of %d objects are there", n, objects+100)
		}
	}
	there()
	for _, n := range lost {
		must(t, the.bed.Start(t.Context(), n))
	}
	must(t, os.WriteFile(c.file, whole, 0o600))
	o = c.run(t, "apply", "--yes", "-o", "json").ok(t)
	t.Logf("%d masters again in %.0f s", len(masters), o.took.Seconds())
	there()
	c.run(t, "status", "--verify").ok(t)
}

// images gives nodes what the guests run.
func (c *cluster) images(t *testing.T) {
	t.Helper()
	for _, n := range c.kubelets() {
		must(t, the.bed.Load(t.Context(), n, smoke.Image))
	}
}

// fill writes objects, each of which the API server has acknowledged.
func (c *cluster) fill(t *testing.T, prefix string, n int) {
	t.Helper()
	client := c.client(t).CoreV1().ConfigMaps("default")
	var all sync.WaitGroup
	for w := range 10 {
		all.Go(func() {
			for i := w; i < n; i += 10 {
				_, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: prefix + "-" + strconv.Itoa(i)}, Data: map[string]string{"n": strconv.Itoa(i)}}, metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// back checks whether all is there that was there before the backup, and nothing that came later.
func (c *cluster) back(t *testing.T, objects int) {
	t.Helper()
	list, err := c.client(t).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	before := 0
	for _, o := range list.Items {
		if strings.HasPrefix(o.Name, "after") {
			t.Errorf("%s is there, which is younger than the backup", o.Name)
		}
		if strings.HasPrefix(o.Name, "before-") && o.Data["n"] == strings.TrimPrefix(o.Name, "before-") {
			before++
		}
	}
	if before != objects {
		t.Errorf("%d of %d objects are there", before, objects)
	}
	nodes, err := c.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(nodes.Items) != len(c.kubelets()) {
		t.Errorf("%d nodes, and %d kubelets", len(nodes.Items), len(c.kubelets()))
	}
	for begin := time.Now(); ; time.Sleep(time.Second) {
		is, err := c.client(t).AppsV1().Deployments("default").Get(t.Context(), "guests", metav1.GetOptions{})
		must(t, err)
		if is.Status.ReadyReplicas == 4 && is.Status.ObservedGeneration == is.Generation {
			break
		}
		if time.Since(begin) > 3*time.Minute {
			t.Fatalf("%d of 4 guests are ready", is.Status.ReadyReplicas)
		}
	}
	whole(t, c)
}

// killedOnce kills a run at a random moment, not long after its beginning, and runs it again.
func (c *cluster) killedOnce(t *testing.T, longest time.Duration, args ...string) *outcome {
	t.Helper()
	random := rand.New(rand.NewPCG(seed(t), 1))
	p := c.start(t, nil, args...)
	timer := time.AfterFunc(time.Second+time.Duration(random.Int64N(int64(longest))), func() { p.signal(syscall.SIGKILL) })
	o := p.wait(t)
	timer.Stop()
	if o.code == 128+int(syscall.SIGKILL) {
		t.Logf("killed after %.1f s", o.took.Seconds())
		if args[0] == "restore" { // a recovery may not have begun
			c.create(t).fails(t, fault.ExitUsage, "has begun, and has not ended")
		}
		o = c.run(t, args...)
	} else {
		t.Logf("it was not killed: it had ended after %.1f s", o.took.Seconds())
	}
	return o.ok(t)
}
