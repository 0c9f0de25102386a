package kube

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// apiService are the objects of the service kubernetes, by which pods reach API servers, and where these have the port of them. API
// servers make them, and keep the addresses in them, but leave the port as it is (pkg/controlplane/reconcilers/lease.go of
// Kubernetes). They make the EndpointSlice from the Endpoints, so that it comes after.
var apiService = []struct {
	kind    schema.GroupVersionResource
	pointer string // RFC 6901
}{
	{schema.GroupVersionResource{Version: "v1", Resource: "services"}, "/spec/ports/0/targetPort"},
	{schema.GroupVersionResource{Version: "v1", Resource: "endpoints"}, "/subsets/0/ports/0/port"},
	{schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}, "/ports/0/port"},
}

// DiffAPIPort returns what SetAPIPort would change, or "" if nothing.
func (c *Client) DiffAPIPort(ctx context.Context, port int) (text string, err error) {
	err = c.apiPort(ctx, "reading the service kubernetes", port, func(resource string, was int64, _ func() error) error {
		text += fmt.Sprintf("%s kubernetes: port %d -> %d\n", resource, was, port)
		return nil
	})
	return text, err
}

// SetAPIPort lets the service kubernetes lead to a port of API servers.
func (c *Client) SetAPIPort(ctx context.Context, port int) error {
	return c.apiPort(ctx, "changing the port of the service kubernetes", port, func(_ string, _ int64, set func() error) error { return set() })
}

// apiPort calls do for each object that has another port.
func (c *Client) apiPort(ctx context.Context, doing string, port int, do func(resource string, was int64, set func() error) error) error {
	for _, o := range apiService {
		on := c.Dynamic.Resource(o.kind).Namespace(metav1.NamespaceDefault)
		err := c.retry(ctx, doing, func(ctx context.Context) error {
			live, err := on.Get(ctx, "kubernetes", metav1.GetOptions{})
			if absent(err) {
				return nil
			}
			if err != nil {
				return err
			}
			was, is := at(live.Object, o.pointer).(int64)
			if !is || was == int64(port) {
				return nil
			}
			return do(o.kind.Resource, was, func() error {
				patch := fmt.Sprintf(`[{"op": "replace", "path": %q, "value": %d}]`, o.pointer, port)
				_, err := on.Patch(ctx, "kubernetes", types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldManager: FieldManager})
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// at is the value to which a pointer leads that takes the first of each list; nil: there is none.
func at(value any, pointer string) any {
	for name := range strings.SplitSeq(pointer[1:], "/") {
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
		case []any:
			if len(v) == 0 {
				return nil
			}
			value = v[0]
		}
	}
	return value
}
