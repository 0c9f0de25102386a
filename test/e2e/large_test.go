//go:build e2e

package e2e

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"fmt"
	"os"
	"os/exec"
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
	"k8s.io/client-go/kubernetes"

	"github.com/kubexm/kubexm/test/testbed"
)

// TestLargeBackup backs up an etcd with much data that cannot be compressed, tries the backup, and brings the cluster back to it: how long that takes, how much memory kubexm needs, and how
// long the API takes to answer meanwhile. E2E_LARGE is how many megabytes.
func TestLargeBackup(t *testing.T) {
	if os.Getenv("E2E_LARGE") == "" {
		t.Skip("it takes some minutes, and is asked for by E2E_LARGE=MEGABYTES")
	}
	size, err := strconv.Atoi(os.Getenv("E2E_LARGE"))
	must(t, err)
	defer the.shrink(t)
	restoreMachines(t)
	the.resize(t, testbed.Rows[0].Nodes())
	key, dir := filepath.Join(t.TempDir(), "recovery.key"), filepath.Join(t.TempDir(), "backups")
	public, err := exec.Command(the.program, "backup", "key", "--out", key).Output()
	must(t, err)
	c := newCluster(t, 1, where{}, impatient, set("backup", map[string]any{"recipients": []any{strings.TrimSpace(string(public))}, "targets": []any{map[string]any{"dir": dir}}}))
	c.create(t).ok(t)
	defer func() { c.remove(t) }()
	client := c.client(t)
	const each = 700 << 10 // an object has 1 MiB at most
	n := size << 20 / each
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			data := make([]byte, each)
			for i := w; i < n; i += 4 {
				_, _ = crand.Read(data)
				_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%d", i)}, BinaryData: map[string][]byte{"data": data}}, metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	t.Logf("etcd:\n%s", c.run(t, "etcd", "status").ok(t).text())
	idle := latencies(t, client)
	time.Sleep(20 * time.Second)
	t.Logf("the API, idle: %s", idle())
	report := func(what string, o *outcome) {
		used := o.cmd.ProcessState.SysUsage().(*syscall.Rusage)
		t.Logf("%s: %.1f s, %d MB of memory at most", what, o.took.Seconds(), used.Maxrss>>10)
	}
	meanwhile := latencies(t, client)
	o := c.run(t, "backup", "create").ok(t)
	t.Logf("the API, meanwhile: %s", meanwhile())
	t.Log(o.text())
	report("backup", o)
	if used := o.cmd.ProcessState.SysUsage().(*syscall.Rusage); used.Maxrss > 100<<10 {
		t.Errorf("the backup takes %d MB of memory", used.Maxrss>>10)
	}
	report("drill", c.run(t, "backup", "verify", "latest", "-i", key).ok(t))
	report("restore in place", c.run(t, "restore", "latest", "-i", key, "--yes", "-o", "json").ok(t))
	list, err := c.client(t).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	must(t, err)
	if len(list.Items) < n {
		t.Errorf("%d of %d objects are back", len(list.Items), n)
	}
}

// latencies asks the API all the time until it is called, and says how long answers have taken.
func latencies(t *testing.T, client kubernetes.Interface) func() string {
	ctx, stop := context.WithCancel(t.Context())
	var took []time.Duration
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			begin := time.Now()
			if _, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err == nil || ctx.Err() == nil {
				took = append(took, time.Since(begin))
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() string {
		stop()
		asking.Wait()
		slices.SortFunc(took, func(a, b time.Duration) int { return cmp.Compare(a, b) })
		at := func(part float64) time.Duration {
			return took[int(float64(len(took)-1)*part)].Round(100 * time.Microsecond)
		}
		return fmt.Sprintf("%d answers: %s in the middle, %s for 99 of 100, %s at most", len(took), at(0.5), at(0.99), at(1))
	}
}
