package kube

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/pkg/kube/kubetest"
)

const (
	addon = `
apiVersion: v1
kind: Namespace
metadata: {name: kx-addon, labels: {app: addon}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: kx-addon, labels: {app: addon}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: addon, namespace: kx-addon, labels: {app: addon}}
`
	theirs = `{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs, namespace: kx-addon}}`
	left   = `{apiVersion: v1, kind: ConfigMap, metadata: {name: kx-left, namespace: kube-system, labels: {app: addon}}}`
)

// listed is what the inventory has of a set.
func listed(t *testing.T, c *Client, set string) string {
	t.Helper()
	is, err := c.Typed.CoreV1().ConfigMaps("kube-system").Get(within(t), Inventory, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return is.Data[set]
}

func applySet(t *testing.T, c *Client, name, text string, diff ...string) {
	t.Helper()
	objs := read(t, text)
	got, err := c.DiffSet(within(t), name, objs...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range diff {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	if err := c.ApplySet(within(t), name, objs...); err != nil {
		t.Fatal(err)
	}
	if got, err := c.DiffSet(within(t), name, objs...); got != "" || err != nil {
		t.Errorf("there is something to do after ApplySet: %q, %v", got, err)
	}
}

// TestKeptObjects stay where a chart wants that, when they are not wanted any more.
func TestKeptObjects(t *testing.T) {
	onEach(t, func(t *testing.T, c *Client) {
		const goes, stays = "{apiVersion: v1, kind: ConfigMap, metadata: {name: kx-goes, labels: {a: b}}}", `{apiVersion: v1, kind: ConfigMap, metadata: {name: kx-stays, annotations: {helm.sh/resource-policy: keep}}}`
		applySet(t, c, "kept", goes+"\n---\n"+stays)
		applySet(t, c, "kept", "", "- ConfigMap kx-goes")
		if there(t, c, goes) || !there(t, c, stays) || listed(t, c, "kept") != "" {
			t.Errorf("the one is there: %t, the other: %t; recorded are %q", there(t, c, goes), there(t, c, stays), listed(t, c, "kept"))
		}
		gone(t, c, read(t, stays)...)
	})
}

func gone(t *testing.T, c *Client, objs ...*unstructured.Unstructured) {
	t.Helper()
	if err := c.Delete(within(t), objs...); err != nil {
		t.Fatal(err)
	}
}

func there(t *testing.T, c *Client, text string) bool {
	t.Helper()
	return live(t, c, read(t, text)[0]) != nil
}

// TestPrune takes objects out of sets: they go, and what is not kubexm's stays.
func TestPrune(t *testing.T) {
	onEach(t, func(t *testing.T, c *Client) {
		docs := strings.Split(addon, "---\n")
		namespace, settings, account := docs[0], docs[1], docs[2]
		apply(t, c, read(t, left)...) // by Apply alone: nobody recorded it
		applySet(t, c, "the addon", addon)
		applySet(t, c, "other", left)
		want := "v1 ConfigMap kx-addon/settings\nv1 Namespace kx-addon\nv1 ServiceAccount kx-addon/addon\n"
		if got := listed(t, c, "the-addon"); got != want {
			t.Errorf("recorded:\n%s", got)
		}

		applySet(t, c, "the addon", namespace+"---\n"+settings, "- ServiceAccount kx-addon/addon")
		if there(t, c, account) || !there(t, c, settings) {
			t.Error("pruned wrongly")
		}

		if _, err := c.Typed.CoreV1().ConfigMaps("kx-addon").Create(within(t), configMap(t, theirs), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		applySet(t, c, "the addon", "", "- ConfigMap kx-addon/settings")
		if there(t, c, settings) || !there(t, c, namespace) || !there(t, c, theirs) {
			t.Error("the namespace went, with what others have in it")
		}
		if got := listed(t, c, "the-addon"); got != "v1 Namespace kx-addon\n" {
			t.Errorf("recorded:\n%s", got)
		}
		gone(t, c, read(t, theirs)...)
		applySet(t, c, "the addon", "", "- Namespace kx-addon")
		if there(t, c, namespace) || listed(t, c, "the-addon") != "" {
			t.Error("the empty namespace is still there")
		}

		applySet(t, c, "the addon", left) // it is the other set's, too
		applySet(t, c, "the addon", "")
		if !there(t, c, left) {
			t.Error("another set's object went")
		}
		gone(t, c, read(t, left)...)
		if _, err := c.Typed.CoreV1().ConfigMaps("kube-system").Create(within(t), configMap(t, left), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		applySet(t, c, "other", "", "record what was applied in ConfigMap kube-system/"+Inventory)
		if !there(t, c, left) {
			t.Error("what somebody else made in its place went")
		}
		gone(t, c, read(t, left)...)
	})
}

// TestPruneKind takes a definition of a kind out of a set, with and without objects of others.
func TestPruneKind(t *testing.T) {
	c, _ := inMemory(t, kubetest.New())
	const kind = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.example.org}, spec: {group: example.org,
names: {plural: things, kind: Thing}, scope: Cluster, versions: [{name: v1, served: true, storage: true}]}}`
	const thing = `{apiVersion: example.org/v1, kind: Thing, metadata: {name: theirs}}`
	applySet(t, c, "kinds", kind)
	apply(t, c, read(t, thing)...)
	applySet(t, c, "kinds", "")
	if !there(t, c, thing) {
		t.Error("the kind went, with an object of it")
	}
	gone(t, c, read(t, thing)...)
	applySet(t, c, "kinds", "", "- CustomResourceDefinition things.example.org")
	if there(t, c, kind) {
		t.Error("the kind is still there")
	}
}

// TestCutOff ends ApplySet after each of its requests: the next one forgets nothing, and comes to the same end.
func TestCutOff(t *testing.T) {
	const was = left + "\n---\n" + `{apiVersion: v1, kind: ConfigMap, metadata: {name: kx-old, namespace: kube-system}, data: {a: b}}`
	const is = left + "\n---\n" + `{apiVersion: v1, kind: ConfigMap, metadata: {name: kx-new, namespace: kube-system}, data: {a: b}}`
	for most := 0; ; most++ {
		server := kubetest.New()
		c, access := inMemory(t, server)
		applySet(t, c, "x", was)
		cut := client(t, access)
		transport, writes := cut.servers.http, 0
		cut.config.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet {
				if writes++; writes > most {
					return nil, errors.New("killed")
				}
			}
			return transport.RoundTrip(r)
		})
		if err := cut.connect(); err != nil {
			t.Fatal(err)
		}
		err := cut.ApplySet(Impatient(within(t)), "x", read(t, is)...)
		again := client(t, access)
		for _, o := range read(t, was+"\n---\n"+is) {
			if live(t, again, o) != nil && !strings.Contains(listed(t, again, "x"), line(o)+"\n") {
				t.Errorf("after %d writes %s is there and not recorded", most, title(o))
			}
		}
		applySet(t, again, "x", is)
		if there(t, again, strings.Split(was, "---\n")[1]) || listed(t, again, "x") != "v1 ConfigMap kube-system/kx-left\nv1 ConfigMap kube-system/kx-new\n" {
			t.Errorf("after %d writes and another run: %s", most, listed(t, again, "x"))
		}
		if err == nil {
			if most < 4 {
				t.Errorf("%d writes", most)
			}
			return
		}
	}
}

// TestInventoryIsReadOnce counts how often it is asked for.
func TestInventoryIsReadOnce(t *testing.T) {
	server := kubetest.New()
	c, access := inMemory(t, server)
	applySet(t, c, "a", left)
	applySet(t, c, "b", left)
	asked := 0
	counting := client(t, access)
	transport := counting.servers.http
	counting.config.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+Inventory) {
			asked++
		}
		return transport.RoundTrip(r)
	})
	if err := counting.connect(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		applySet(t, counting, "a", left)
		applySet(t, counting, "b", "")
		applySet(t, counting, "b", left)
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func configMap(t *testing.T, text string) *corev1.ConfigMap {
	t.Helper()
	o := read(t, text)[0]
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}}
}

// TestTwoSetsWait applies two sets at a time while the server is away: one waits for the other, and both are applied.
func TestTwoSetsWait(t *testing.T) {
	inBubble(t, func(t *testing.T, server *kubetest.Server, _ *Client, access Access) {
		start, dial := time.Now(), access.Dial
		access.Patience = time.Minute
		access.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if time.Since(start) < 20*time.Second {
				return nil, syscall.ECONNREFUSED
			}
			return dial(ctx, network, addr)
		}
		c := client(t, access)
		var both sync.WaitGroup
		for _, name := range []string{"left", "right"} {
			both.Go(func() {
				if err := c.ApplySet(t.Context(), name, read(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: `+name+`, namespace: default}}`)...); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
	})
}
