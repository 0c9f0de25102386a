//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// relay is the port on a worker that leads to where the endpoint's name leads there,
// looked up again for each connection.
const relay = "7443"

// watcher looks every 100 ms whether the API server answers, as a user on the worker
// sees it, and writes to it all the time.
type watcher struct {
	client *kubernetes.Clientset // gives up soon
	calm   *kubernetes.Clientset // for what is not measured
	cancel context.CancelFunc
	busy   sync.WaitGroup

	mu      sync.Mutex
	asked   int
	failed  map[string]int // questions without an answer, by the reason
	when    []failure      // the same, as they were asked
	good    []time.Time    // when questions were asked that got an answer
	written []string       // objects whose writing was acknowledged
}

// failure is a question that got no answer.
type failure struct {
	at  time.Time
	why string
}

// spells tells when questions failed, in a line for each time in which that had one reason, to compare with `kubexm events`.
func spells(all []failure) string {
	slices.SortFunc(all, func(a, b failure) int { return a.at.Compare(b.at) })
	var out strings.Builder
	for i := 0; i < len(all); {
		last := i
		for last+1 < len(all) && all[last+1].why == all[i].why && all[last+1].at.Sub(all[last].at) < time.Second {
			last++
		}
		fmt.Fprintf(&out, "\n%s to %s: %d times %s", all[i].at.UTC().Format("15:04:05.0"), all[last].at.UTC().Format("15:04:05.0"), last-i+1, all[i].why)
		i = last + 1
	}
	return out.String()
}

// watch begins to watch.
func watch(t *testing.T, c *cluster) *watcher {
	t.Helper()
	conf, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	must(t, err)
	conf.Host, conf.TLSClientConfig.ServerName = "https://"+c.workers()[0].Port(relay), "kubernetes"
	conf.QPS, conf.Burst, conf.Timeout = 1000, 1000, time.Minute
	calm, err := kubernetes.NewForConfig(conf)
	must(t, err)
	conf.Timeout = 2 * time.Second
	client, err := kubernetes.NewForConfig(conf)
	must(t, err)
	secure, err := rest.TLSConfigFor(conf)
	must(t, err)
	fresh := &http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}}
	c.relay(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	w := &watcher{client: client, calm: calm, cancel: cancel, failed: map[string]int{}}
	run := fmt.Sprintf("watch-%d", time.Now().UnixNano())
	w.busy.Go(func() { w.poll(ctx, fresh, conf.Host+"/api/v1/namespaces/default") })
	w.busy.Go(func() { w.write(ctx, run) })
	t.Cleanup(cancel)
	w.until(t, 500*time.Millisecond)
	return w
}

// relay lets the worker lead us to where it is led itself, by the name of the endpoint.
func (c *cluster) relay(t *testing.T) {
	t.Helper()
	const renamed = `#!/bin/sh
exec socat - TCP:"$(sed -n 's|^ *server: https://||p' /etc/kubernetes/kubelet.conf)",connect-timeout=1`
	to := "TCP:lb.kubexm.local:6443,connect-timeout=1"
	if c.renamed {
		the.on(t, c.workers()[0], "cat >/run/relay <<'END'\n"+renamed+"\nEND\nchmod 755 /run/relay")
		to = "EXEC:/run/relay"
	}
	the.on(t, c.workers()[0], "systemctl is-active -q relay || systemd-run -q --unit relay socat "+byFamily("TCP", "TCP6")+"-LISTEN:"+relay+
		",fork,reuseaddr "+to+"; until ss -Hltn | grep -q :"+relay+"; do sleep 0.1; done")
}

// unrelay ends that.
func (c *cluster) unrelay(t *testing.T) {
	t.Helper()
	the.on(t, c.workers()[0], "systemctl stop relay; systemctl reset-failed relay 2>/dev/null; rm -f /run/relay")
}

// poll asks on a new connection each time.
func (w *watcher) poll(ctx context.Context, client *http.Client, url string) {
	var asked sync.WaitGroup
	defer asked.Wait()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		at := time.Now()
		w.mu.Lock()
		w.asked++
		w.mu.Unlock()
		asked.Go(func() {
			answer, err := client.Get(url)
			w.mu.Lock()
			defer w.mu.Unlock()
			why := ""
			switch {
			case err != nil:
				why = reason(err)
			case answer.StatusCode != http.StatusOK:
				why = answer.Status
			default:
				w.good = append(w.good, at)
			}
			if why != "" {
				w.failed[why]++
				w.when = append(w.when, failure{at, why})
			}
			if err == nil {
				answer.Body.Close()
			}
		})
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// reason is the innermost error, which names no ports.
func reason(err error) string {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}

// write creates objects, one after the other.
func (w *watcher) write(ctx context.Context, run string) {
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("%s-%d", run, n)
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"watch": "yes"}}}
		if _, err := w.client.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{}); err == nil {
			w.mu.Lock()
			w.written = append(w.written, name)
			w.mu.Unlock()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// until goes on watching for a while.
func (w *watcher) until(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

// answered waits until the API server answers, however long that takes within reason.
func (w *watcher) answered(t *testing.T) {
	t.Helper()
	begin := time.Now()
	for time.Since(begin) < 2*time.Minute {
		w.mu.Lock()
		back := slices.ContainsFunc(w.good, begin.Before)
		w.mu.Unlock()
		if back {
			return
		}
		w.until(t, 100*time.Millisecond)
	}
	t.Error("nobody has taken over: the API server does not answer")
}

// seen is what a watcher has seen.
type seen struct {
	gap        time.Duration // the longest time without an answer
	asked      int
	failed     map[string]int // questions without an answer, by the reason
	kept, lost int            // acknowledged writes that are there still, and are not
}

func (s seen) String() string {
	failed := 0
	for _, n := range s.failed {
		failed += n
	}
	return fmt.Sprintf("%d of %d questions failed %v, the API server was away for %.1f s; %d writes, %d of them lost",
		failed, s.asked, s.failed, s.gap.Seconds(), s.kept+s.lost, s.lost)
}

// stop ends the watch. A write that is lost fails the test.
func (w *watcher) stop(t *testing.T) (s seen) {
	t.Helper()
	w.cancel()
	w.busy.Wait()
	slices.SortFunc(w.good, time.Time.Compare)
	for i := 1; i < len(w.good); i++ {
		s.gap = max(s.gap, w.good[i].Sub(w.good[i-1]))
	}
	s.asked, s.failed = w.asked, w.failed
	if len(w.when) > 0 {
		t.Log("questions failed:", spells(w.when))
	}
	maps, all := w.calm.CoreV1().ConfigMaps("default"), metav1.ListOptions{LabelSelector: "watch=yes"}
	var list *corev1.ConfigMapList
	settled(t, func() (err error) { list, err = maps.List(t.Context(), all); return err })
	there := map[string]bool{}
	for _, o := range list.Items {
		there[o.Name] = true
	}
	for _, name := range w.written {
		if there[name] {
			s.kept++
		} else {
			s.lost++
		}
	}
	if len(w.good) < 5 || s.kept == 0 {
		t.Errorf("nothing was watched: %s", s)
	}
	if s.lost > 0 {
		t.Errorf("%d writes that were acknowledged are lost", s.lost)
	}
	settled(t, func() error { return maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, all) })
	return s
}

// settled calls f again where its connection broke: the virtual address may go home to a load balancer
// that is back, and what goes through the other one breaks off.
func settled(t *testing.T, f func() error) {
	t.Helper()
	err := f()
	for begin := time.Now(); err != nil && !isAnswer(err) && time.Since(begin) < 10*time.Second; err = f() {
		time.Sleep(100 * time.Millisecond)
	}
	must(t, err)
}

// isAnswer reports whether an error is one that the API server gave.
func isAnswer(err error) bool {
	_, answer := errors.AsType[*apierrors.StatusError](err)
	return answer
}
