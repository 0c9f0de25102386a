package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// inBubble runs a test on a clock of its own: what waits costs no time.
func inBubble(t *testing.T, test func(t *testing.T, server *kubetest.Server, c *Client, access Access)) {
	synctest.Test(t, func(t *testing.T) {
		server := kubetest.New()
		c, access := inMemory(t, server)
		test(t, server, c, access)
	})
}

func TestServerComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *kubetest.Server, _ *Client, access Access) {
		start, tries, dial := time.Now(), 0, access.Dial
		access.Patience = 30 * time.Second
		access.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			tries++
			switch away := time.Since(start); {
			case away < 10*time.Second:
				return nil, syscall.ECONNREFUSED
			case away < 20*time.Second: // it accepts, and falls
				near, far := net.Pipe()
				_ = far.Close()
				return near, nil
			}
			return dial(ctx, network, addr)
		}
		version, err := client(t, access).Version(t.Context())
		if version != "v1.37.0" || err != nil {
			t.Errorf("%q, %v", version, err)
		}
		if tries < 5 || tries > 25 {
			t.Errorf("%d tries in 20 seconds", tries)
		}
	})
}

func TestServerStaysAway(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *kubetest.Server, _ *Client, access Access) {
		access.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
		access.Patience = 0
		start := time.Now()
		_, err := client(t, access).Diff(t.Context(), object("v1", "Node", "n"))
		if took := time.Since(start); took > 31*time.Second {
			t.Errorf("gave up after %v", took)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) || !fault.IsTransient(err) || !strings.Contains(fault.Advice(err), "kube-apiserver runs") {
			t.Errorf("%v, advice %q", err, fault.Advice(err))
		}
		start = time.Now()
		if _, err = client(t, access).Diff(Impatient(t.Context()), object("v1", "Node", "n")); time.Since(start) > 0 || !fault.IsTransient(err) {
			t.Errorf("impatient, and took %v: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = client(t, access).WaitNodeReady(ctx, "n")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") {
			t.Error(err)
		}
	})
}

func TestCertificatesDisagree(t *testing.T) {
	other := &pki.Store{Dir: t.TempDir()}
	ca, err := other.CA(pki.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Access){
		"server of another cluster": func(a *Access) { a.CA = ca.Cert },
		"client of another cluster": func(a *Access) { a.Client = other.Operator },
		"server of another name":    func(a *Access) { a.ServerName = "lb.example.org" },
	} {
		check := func(t *testing.T, access Access) {
			access.Patience = 20 * time.Second // and yet it ends at once
			spoil(&access)
			_, err := client(t, access).Diff(t.Context(), object("v1", "Node", "n"))
			if err == nil || fault.IsTransient(err) || !strings.Contains(fault.Advice(err), "certificate authority") {
				t.Errorf("%v, advice %q", err, fault.Advice(err))
			}
		}
		t.Run(name+"/memory", func(t *testing.T) {
			_, access := inMemory(t, kubetest.New())
			check(t, access)
		})
		t.Run(name+"/real", func(t *testing.T) {
			realServer(t)
			check(t, shared.access)
		})
	}
}

func TestTransient(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	lost := func(err error) error { return &url.Error{Op: "Get", URL: "https://x", Err: err} }
	status := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message}}
	}
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"refused":            {lost(syscall.ECONNREFUSED), true},
		"cut":                {lost(io.EOF), true},
		"cut in the answer":  {fmt.Errorf("reading: %w", io.ErrUnexpectedEOF), true},
		"reset":              {fmt.Errorf("reading: %w", syscall.ECONNRESET), true},
		"one call timed out": {lost(context.DeadlineExceeded), true},
		"marked below":       {fault.Transient(errors.New("ssh went away")), true},
		"leader changed":     {status(500, "etcdserver: leader changed"), true},
		"webhook away":       {apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		"too many requests":  {apierrors.NewTooManyRequests("busy", 1), true},
		"starting":           {apierrors.NewServiceUnavailable("starting"), true},
		"proxy without end":  {status(http.StatusBadGateway, "bad gateway"), true},
		"compacted":          {apierrors.NewResourceExpired("too old"), true},
		"invalid object":     {status(500, "failed to create typed patch object (...): .x: field not declared in schema"), false},
		"not found":          {apierrors.NewNotFound(nodes, "n"), false},
		"forbidden":          {apierrors.NewForbidden(nodes, "n", nil), false},
		"other":              {errors.New("a bug"), false},
		"wrong authority":    {lost(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := transient(tt.err); got != tt.want {
				t.Errorf("%v: %v", tt.err, got)
			}
		})
	}
}

func TestAPIReady(t *testing.T) {
	onEach(t, func(t *testing.T, c *Client) {
		if err := c.WaitAPIReady(within(t)); err != nil {
			t.Error(err)
		}
		if version, err := c.Version(within(t)); err != nil || !strings.HasPrefix(version, "v1.") {
			t.Errorf("%q, %v", version, err)
		}
	})
	t.Run("not yet", func(t *testing.T) {
		inBubble(t, func(t *testing.T, server *kubetest.Server, c *Client, _ Access) {
			ready := time.Now().Add(10 * time.Second)
			server.Failing = func() []string {
				if time.Now().After(ready) {
					return nil
				}
				return []string{"etcd", "poststarthook/rbac/bootstrap-roles"}
			}
			err := c.APIReady(t.Context())
			const want = "asking the API server whether it is ready: etcd failed: reason withheld; poststarthook/rbac/bootstrap-roles failed: reason withheld"
			if err == nil || err.Error() != want || !fault.IsTransient(err) {
				t.Error(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := c.WaitAPIReady(ctx); err == nil || err.Error() != want {
				t.Error(err)
			}
			if err := c.WaitAPIReady(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
}

// TestControllerIsFaster has a controller that writes an object between the two
// questions of Diff.
func TestControllerIsFaster(t *testing.T) {
	server := kubetest.New()
	c, _ := inMemory(t, server)
	objs := read(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: default}, data: {a: b}}`)
	apply(t, c, objs...)
	wrote := false
	server.OnWrite = func(obj *unstructured.Unstructured) { // first seen in the dry run
		if !wrote {
			wrote = true
			obj.SetAnnotations(map[string]string{"controller": "was here"})
			obj.SetResourceVersion("1000000")
		}
	}
	if text := difference(t, c, objs...); text != "" || !wrote {
		t.Error(text)
	}
}

func TestWaitNodeReady(t *testing.T) {
	inBubble(t, func(t *testing.T, server *kubetest.Server, c *Client, _ Access) {
		for _, tt := range []struct {
			prepare func()
			want    string
		}{
			{func() {}, "its kubelet has not registered it"},
			{func() { server.Put(object("v1", "Node", "node1")) }, "its kubelet has reported nothing yet"},
			{func() { server.AddNode("node1", false) }, "KubeletNotReady: cni plugin not initialized"},
			{func() {
				for _, pod := range []string{"network-x", "guest"} {
					o := object("v1", "Pod", pod)
					o.SetNamespace("kube-system")
					o.Object["spec"] = map[string]any{"nodeName": "node1", "hostNetwork": pod != "guest"}
					o.Object["status"] = map[string]any{"containerStatuses": []any{map[string]any{"name": pod, "state": map[string]any{"waiting": map[string]any{"reason": "CrashLoopBackOff"}}}}}
					server.Put(o)
				}
			}, "KubeletNotReady: cni plugin not initialized\n  pod network-x: container network-x waits: CrashLoopBackOff"},
		} {
			tt.prepare()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := c.WaitNodeReady(ctx, "node1")
			cancel()
			if want := "waiting for node node1 to be Ready: context deadline exceeded: " + tt.want; err == nil || err.Error() != want {
				t.Errorf("got %v, want %v", err, want)
			}
			seen, _, _ := strings.Cut(tt.want, "\n")
			if missing, err := c.NodeNotReady(t.Context(), "node1"); missing != "Node node1: "+seen || err != nil {
				t.Errorf("%q, %v", missing, err)
			}
		}
		time.AfterFunc(time.Hour, func() { server.AddNode("node1", true) })
		if err := c.WaitNodeReady(t.Context(), "node1"); err != nil {
			t.Error(err)
		}
		if missing, err := c.NodeNotReady(t.Context(), "node1"); missing != "" || err != nil {
			t.Errorf("%q, %v", missing, err)
		}

		// Cancelled is not timed out: no searching for reasons.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if err := c.WaitNodeReady(ctx, "node2"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestWaitReady(t *testing.T) {
	inBubble(t, func(t *testing.T, server *kubetest.Server, c *Client, access Access) {
		broken := true
		server.OnWrite = func(obj *unstructured.Unstructured) {
			if kubetest.Settle(obj); broken && obj.GetKind() == "Deployment" {
				obj.Object["status"] = map[string]any{"observedGeneration": obj.GetGeneration(), "replicas": int64(3), "updatedReplicas": int64(3), "readyReplicas": int64(1), "availableReplicas": int64(1)}
			}
		}
		workload := readFile(t, "testdata/workload.yaml")
		for _, obj := range workload[1:] { // its pods and events
			server.Put(obj)
		}
		apply(t, c, workload[0])
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		err := c.WaitReady(ctx, workload[0])
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		golden.Equal(t, err.Error()+"\n")

		// The server goes away, comes back, and then the workload gets ready.
		smaller := read(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: agent, namespace: default}, spec: {replicas: 2, selector: {matchLabels: {app: agent}}}}`)
		applied := make(chan error)
		time.AfterFunc(time.Minute, func() {
			broken = false
			applied <- c.Apply(t.Context(), smaller...)
		})
		start := time.Now()
		dial := access.Dial
		access.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if away := time.Since(start); away > 20*time.Second && away < 40*time.Second {
				return nil, syscall.ECONNREFUSED
			}
			conn, err := dial(ctx, network, addr)
			time.AfterFunc(20*time.Second, func() { _ = conn.Close() })
			return conn, err
		}
		if err := errors.Join(client(t, access).WaitReady(t.Context(), workload[0]), <-applied); err != nil {
			t.Error(err)
		}
	})
}

// TestLostNodes has a DaemonSet and a Deployment with pods on three nodes: the one on a node that is lost is not waited for.
func TestLostNodes(t *testing.T) {
	for kind, rest := range map[string]string{
		"DaemonSet": `, spec: {selector: {matchLabels: {app: agent}}}, status: {observedGeneration: 1,
			desiredNumberScheduled: 3, currentNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 2, numberReady: 2}}`,
		"Deployment": `, spec: {replicas: 3, selector: {matchLabels: {app: agent}}}, status: {observedGeneration: 1,
			replicas: 3, updatedReplicas: 3, availableReplicas: 2, readyReplicas: 2, conditions: [{type: Available, status: "True"}, {type: Progressing, status: "True"}]}}`,
	} {
		t.Run(kind, func(t *testing.T) {
			lostNodes(t, `{apiVersion: apps/v1, kind: `+kind+`, metadata: {name: agent, namespace: default, generation: 1}`+rest)
		})
	}
}

func lostNodes(t *testing.T, workload string) {
	inBubble(t, func(t *testing.T, server *kubetest.Server, c *Client, _ Access) {
		server.OnWrite = func(*unstructured.Unstructured) {} // all is as it is put
		set := read(t, workload)
		node := func(ready string) {
			server.Put(read(t, `{apiVersion: v1, kind: Node, metadata: {name: node3}, status: {conditions: [{type: Ready, status: "`+ready+`"}]}}`)[0])
		}
		pod := func(node, ready string) {
			server.Put(read(t, `{apiVersion: v1, kind: Pod, metadata: {name: agent-`+node+`, namespace: default, labels: {app: agent}}, spec: {nodeName: `+node+`},
				status: {conditions: [{type: Ready, status: "`+ready+`"}]}}`)[0])
		}
		for _, n := range []string{"node1", "node2", "node3"} {
			server.AddNode(n, true)
			pod(n, "True") // of one that is lost, too, for a while
		}
		server.Put(set[0])
		node("False")
		if missing, err := c.NotReady(t.Context(), set...); missing == "" || err != nil {
			t.Errorf("a node that is not ready yet: %q, %v", missing, err)
		}
		time.AfterFunc(40*time.Second, func() { node("Unknown") }) // the node-monitor-grace-period
		if err := c.WaitReady(t.Context(), set...); err != nil {
			t.Error(err)
		}
		if missing, err := c.NotReady(t.Context(), set...); missing != "" || err != nil {
			t.Errorf("%q, %v", missing, err)
		}
		pod("node2", "False")
		if missing, err := c.NotReady(t.Context(), set...); missing == "" || err != nil {
			t.Errorf("one more lacks: %q, %v", missing, err)
		}
	})
}

// TestJobIsWaitedForToItsEnd is not content with a Job that has begun, unless it is to do nothing.
func TestJobIsWaitedForToItsEnd(t *testing.T) {
	server := kubetest.New()
	server.OnWrite = func(obj *unstructured.Unstructured) {
		if obj.GetKind() == "Job" {
			obj.Object["status"] = map[string]any{"startTime": "2026-01-01T00:00:00Z", "active": int64(1)}
		}
	}
	c, _ := inMemory(t, server)
	for suspended, want := range map[string]string{"false": "Job default/j: Job in progress. success:0, active: 1, failed: 0", "true": ""} {
		job := read(t, `{apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: default}, spec: {suspend: `+suspended+`}}`)
		apply(t, c, job...)
		if missing, err := c.NotReady(t.Context(), job...); missing != want || err != nil {
			t.Errorf("suspended %s: %q, %v", suspended, missing, err)
		}
	}
}

func TestFailedJobIsNotWaitedFor(t *testing.T) {
	server := kubetest.New()
	server.OnWrite = func(obj *unstructured.Unstructured) {
		if obj.GetKind() == "Job" {
			obj.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Failed", "status": "True", "message": "Job has reached the specified backoff limit"}}}
		}
	}
	c, _ := inMemory(t, server)
	job := read(t, `{apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: default}}`)
	apply(t, c, job...)
	err := c.WaitReady(t.Context(), job...)
	if err == nil || !strings.Contains(err.Error(), "waiting for Job default/j: ") {
		t.Error(err)
	}
}

// TestReasonsOnRealServer has nothing in memory to compare with: it shows that the
// fields that explain a stuck workload are where the real components put them.
func TestReasonsOnRealServer(t *testing.T) {
	c := realServer(t)
	stuck := read(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: stuck, namespace: default}, spec: {selector: {matchLabels: {app: stuck}}, template: {metadata: {labels: {app: stuck}}, spec: {automountServiceAccountToken: false, containers: [{name: a, image: a}]}}}}`)
	apply(t, c, stuck...)
	remove(t, c, stuck...)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := c.WaitReady(ctx, stuck...)
	for _, want := range []string{"waiting for Deployment default/stuck: context deadline exceeded: ", "pod stuck-", "Unschedulable: no nodes available", "FailedScheduling"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
	t.Log(err)
}

// TestWaitThroughDeadMachine waits for a node by way of a machine that is away for a while, and then for good.
func TestWaitThroughDeadMachine(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *kubetest.Server, _ *Client, access Access) {
		start, dial := time.Now(), access.Dial
		access.Patience = 30 * time.Second
		access.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if up := time.Since(start); up < 20*time.Second || up > 50*time.Second && up < 60*time.Second {
				conn, err := dial(ctx, network, addr)
				if err == nil {
					time.AfterFunc(10*time.Second, func() { _ = conn.Close() })
				}
				return conn, err
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
			}
			return nil, fault.Away(errors.New("node4 is not reachable"))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		err := client(t, access).WaitNodeReady(ctx, "node9")
		if took := time.Since(start); !fault.IsAway(err) || !fault.IsTransient(err) || took < 2*time.Minute || took > 3*time.Minute {
			t.Errorf("after %s: %v", took, err)
		}
	})
}
