package kube

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// metrics is what an API server says of itself, where each of calls was made: "GROUP VERSION RESOURCE SUBRESOURCE REMOVED".
func metrics(calls ...string) string {
	text := "# HELP apiserver_request_total [STABLE] Counter\n# TYPE apiserver_request_total counter\napiserver_request_total{code=\"200\"} 7\n" +
		"# TYPE apiserver_requested_deprecated_apis gauge\n"
	for _, call := range calls {
		w := append(strings.Split(call, " "), "", "")
		text += fmt.Sprintf("apiserver_requested_deprecated_apis{group=%q,removed_release=%q,resource=%q,subresource=%q,version=%q} 1\n", w[0], w[4], w[2], w[3], w[1])
	}
	return text + "apiserver_requested_deprecated_apis_more{group=\"x\"} 1\n"
}

// byKubectl is an object that kubectl applied when its API was another one.
func byKubectl(apiVersion, kind, name, last string) *unstructured.Unstructured {
	obj := object(apiVersion, kind, name)
	obj.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: last})
	return obj
}

// byHelm is a Secret in which Helm keeps a release; data is what it has in place of text, if not empty.
func byHelm(t *testing.T, name, status string, zip bool, data string, manifest, hook string) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(map[string]any{"name": name, "chart": map[string]any{"manifest": "no"}, "manifest": manifest, "hooks": []any{map[string]any{"manifest": hook}}})
	if err != nil {
		t.Fatal(err)
	}
	if zip {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(text); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		text = b.Bytes()
	}
	if data == "" {
		data = base64.StdEncoding.EncodeToString(text)
	}
	obj := object("v1", "Secret", "sh.helm.release.v1."+name+".v3")
	obj.SetNamespace("shop")
	obj.SetLabels(map[string]string{"owner": "helm", "status": status, "name": name, "version": "3"})
	obj.Object["type"] = "helm.sh/release.v1"
	obj.Object["data"] = map[string]any{"release": base64.StdEncoding.EncodeToString([]byte(data))}
	return obj
}

const (
	addressCall = "networking.k8s.io v1beta1 ipaddresses  1.37"
	addressUse  = "networking.k8s.io/v1beta1 IPAddress, removed in 1.37 for networking.k8s.io/v1 IPAddress: "
	classUse    = "storage.k8s.io/v1beta1 VolumeAttributesClass, removed in 1.37 for storage.k8s.io/v1 VolumeAttributesClass: "
	address     = "# Source: x\napiVersion: networking.k8s.io/v1beta1\nkind: IPAddress\nmetadata: {name: a}\n"
	class       = `{"apiVersion":"storage.k8s.io/v1beta1","kind":"VolumeAttributesClass","metadata":{"name":"gold"}}`
	current     = "apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata: {name: gold}\n"
)

func TestRemovedUses(t *testing.T) {
	for _, test := range []struct {
		name          string
		node1, node2  []string // deprecated calls
		objects       []*unstructured.Unstructured
		from, to      int // 0: 36 and 37
		found, unread []string
	}{
		{name: "nothing"},
		{
			name: "nothing that goes", node1: []string{"resource.k8s.io v1beta1 resourceclaims  1.38", " v1 endpoints  ", " v1 componentstatuses"},
			objects: []*unstructured.Unstructured{
				byKubectl("storage.k8s.io/v1", "VolumeAttributesClass", "gold", strings.Replace(class, "v1beta1", "v1", 1)),
				byHelm(t, "web", "deployed", true, "", current, ""), byHelm(t, "old", "superseded", true, "", address, ""), object("networking.k8s.io/v1", "IPAddress", "a"),
			},
		},
		{name: "called", node1: []string{addressCall, addressCall + " "}, found: []string{addressUse + "called on node1 since it started"}},
		{
			name: "called on both", node1: []string{addressCall}, node2: []string{addressCall, "storage.k8s.io v1beta1 volumeattributesclasses  1.37"},
			found: []string{addressUse + "called on node1 since it started", addressUse + "called on node2 since it started", classUse + "called on node2 since it started"},
		},
		{
			name: "only the server knows it", node1: []string{"example.org v1beta1 things  1.37", " v1 pods eviction 1.37", "example.org v1beta1 later  1.38", "example.org v1beta1 never"},
			found: []string{"example.org/v1beta1 things, removed in 1.37: called on node1 since it started", "v1 pods/eviction, removed in 1.37: called on node1 since it started"},
		},
		{name: "the table knows better", node1: []string{"resource.k8s.io v1beta1 resourceclaims  1.37"}},
		{name: "gone before", node1: []string{addressCall}, from: 37, to: 39},
		{name: "there is no way", node1: []string{addressCall}, from: 37, to: 37},
		{
			name: "over two versions", node1: []string{"resource.k8s.io v1beta1 resourceclaims  1.38", addressCall}, from: 36, to: 38,
			found: []string{
				addressUse + "called on node1 since it started",
				"resource.k8s.io/v1beta1 ResourceClaim, removed in 1.38 for resource.k8s.io/v1 ResourceClaim: called on node1 since it started",
			},
		},
		{
			name: "kubectl", objects: []*unstructured.Unstructured{
				byKubectl("storage.k8s.io/v1", "VolumeAttributesClass", "gold", class), byKubectl("networking.k8s.io/v1", "IPAddress", "broken", "{"),
			},
			found:  []string{classUse + "VolumeAttributesClass gold by kubectl apply"},
			unread: []string{"IPAddress broken by kubectl apply cannot be read: error converting YAML to JSON"},
		},
		{
			name: "Helm", objects: []*unstructured.Unstructured{
				byHelm(t, "web", "deployed", true, "", "---\n"+current+"---\n"+address+"---\n"+class, ""), byHelm(t, "plain", "deployed", false, "", address, ""),
				byHelm(t, "hook", "deployed", true, "", "", class), byHelm(t, "list", "deployed", true, "", "apiVersion: v1\nkind: List\nitems: ["+class+"]", ""),
				byHelm(t, "items", "deployed", true, "", address+"items: [a]", ""),
			},
			found: []string{
				addressUse + "Helm release shop/items revision 3", addressUse + "Helm release shop/plain revision 3", addressUse + "Helm release shop/web revision 3",
				classUse + "Helm release shop/hook revision 3", classUse + "Helm release shop/list revision 3", classUse + "Helm release shop/web revision 3",
			},
		},
		{
			name: "broken releases", objects: []*unstructured.Unstructured{
				byHelm(t, "code", "deployed", true, "!", "", ""), byHelm(t, "empty", "deployed", true, " ", "", ""), byHelm(t, "zip", "deployed", true, "H4sI", "", ""),
				byHelm(t, "json", "deployed", true, "bm8=", "", ""), byHelm(t, "yaml", "deployed", true, "", "a: [\n---\n"+address, ""), byHelm(t, "whole", "deployed", true, "", address, ""),
			},
			found: []string{addressUse + "Helm release shop/whole revision 3", addressUse + "Helm release shop/yaml revision 3"},
			unread: []string{
				"Helm release shop/code revision 3 cannot be read: illegal base64", "Helm release shop/empty revision 3 cannot be read: ", "Helm release shop/json revision 3 cannot be read: invalid character",
				"Helm release shop/yaml revision 3 cannot be read: error converting YAML", "Helm release shop/zip revision 3 cannot be read: unexpected EOF",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			one, two := kubetest.New(), kubetest.New()
			one.Metrics, two.Metrics = metrics(test.node1...), metrics(test.node2...)
			for _, obj := range test.objects {
				one.Put(obj)
			}
			c, _ := inMemory(t, one)
			second, _ := inMemory(t, two)
			if test.to == 0 {
				test.from, test.to = 36, 37
			}
			found, unread, err := c.RemovedUses(within(t), test.from, test.to, map[string]*Client{"node1": c, "node2": second})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, use := range found {
				got = append(got, use.String())
			}
			if !slices.Equal(got, test.found) {
				t.Errorf("found:\n%s", strings.Join(got, "\n"))
			}
			if !slices.EqualFunc(unread, test.unread, strings.HasPrefix) {
				t.Errorf("unread:\n%s", strings.Join(unread, "\n"))
			}
		})
	}
}

// TestRemovedUsesInPages has more objects than one page, one of which expires, more releases than one, and a kind that cannot be listed.
func TestRemovedUsesInPages(t *testing.T) {
	server := kubetest.New()
	for i := range onePage + 2 {
		server.Put(byKubectl("storage.k8s.io/v1", "VolumeAttributesClass", fmt.Sprintf("gold%03d", i), class))
	}
	for i := range releasesPage + 1 {
		server.Put(byHelm(t, fmt.Sprintf("web%02d", i), "deployed", true, "", address, ""))
	}
	c, access := inMemory(t, server)
	cut := client(t, access)
	transport, asked := c.servers.http, []string{}
	cut.config.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		query, resource := r.URL.Query(), path.Base(r.URL.Path)
		if query.Get("limit") == "" {
			return transport.RoundTrip(r)
		}
		asked = append(asked, strings.TrimSpace(r.Method+" "+resource+" "+query.Get("continue")))
		next := fmt.Sprint(onePage)
		switch expired := apierrors.NewResourceExpired("The provided continue parameter is too old"); {
		case resource == "ipaddresses":
			return refusal(apierrors.NewMethodNotSupported(schema.GroupResource{Resource: resource}, "list"))
		case query.Get("continue") == next && !slices.Contains(asked, "EXPIRED"):
			asked = append(asked, "EXPIRED")
			expired.ErrStatus.Continue = next
			return refusal(expired)
		}
		return transport.RoundTrip(r)
	})
	if err := cut.connect(); err != nil {
		t.Fatal(err)
	}
	found, unread, err := cut.RemovedUses(within(t), 36, 37, nil)
	if err != nil || len(unread) > 0 || len(found) != onePage+2+releasesPage+1 {
		t.Errorf("%d found, %d unread, %v", len(found), len(unread), err)
	}
	want := "GET ipaddresses, GET volumeattributesclasses, GET volumeattributesclasses 500, EXPIRED, GET volumeattributesclasses 500, GET secrets, GET secrets 20"
	if got := strings.Join(asked, ", "); got != want {
		t.Error(got)
	}
}

// refusal is the answer that says no.
func refusal(why *apierrors.StatusError) (*http.Response, error) {
	why.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	answer := httptest.NewRecorder()
	answer.Header().Set("Content-Type", "application/json")
	answer.WriteHeader(int(why.ErrStatus.Code))
	err := json.NewEncoder(answer).Encode(why.ErrStatus)
	return answer.Result(), err
}

// TestRemovedUsesCannotAsk has one API server of two be away: the error says which.
func TestRemovedUsesCannotAsk(t *testing.T) {
	c, access := inMemory(t, kubetest.New())
	access.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	away := client(t, access)
	for want, servers := range map[string]map[string]*Client{
		"reading the metrics of the API server on node2": {"node1": c, "node2": away},
		"asking what the API server serves":              {},
	} {
		from := c
		if len(servers) == 0 {
			from = away
		}
		if found, _, err := from.RemovedUses(Impatient(within(t)), 36, 37, servers); err == nil || found != nil || !strings.HasPrefix(err.Error(), want) || !fault.IsTransient(err) {
			t.Errorf("%v: %v", found, err)
		}
	}
}
