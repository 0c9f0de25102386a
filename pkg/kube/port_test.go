package kube

import (
	"strings"
	"testing"
)

const apiObjects = `
apiVersion: v1
kind: Service
metadata: {name: kubernetes, namespace: default}
spec: {ports: [{port: 443, targetPort: 6443}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: kubernetes, namespace: default}
subsets: [{addresses: [{ip: 10.0.0.11}], ports: [{port: 6443}]}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default}
ports: [{port: 6443}]
`

// TestAPIPort changes the port of the service kubernetes, which a real server has made itself.
func TestAPIPort(t *testing.T) {
	onEach(t, func(t *testing.T, c *Client) {
		ctx := within(t)
		if !strings.HasSuffix(t.Name(), "real") {
			objects, err := ReadObjects([]byte(apiObjects))
			if err != nil {
				t.Fatal(err)
			}
			if text, err := c.DiffAPIPort(ctx, 8443); err != nil || text != "" {
				t.Errorf("diff of nothing: %v\n%s", err, text)
			}
			if err := c.Apply(ctx, objects...); err != nil {
				t.Fatal(err)
			}
		}
		for _, port := range []int{8443, 8444} {
			text, err := c.DiffAPIPort(ctx, port)
			if err != nil || strings.Count(text, "-> 84") != 3 {
				t.Errorf("diff to %d: %v\n%s", port, err, text)
			}
			if err := c.SetAPIPort(ctx, port); err != nil {
				t.Fatal(err)
			}
			if text, err := c.DiffAPIPort(ctx, port); err != nil || text != "" {
				t.Errorf("diff after: %v\n%s", err, text)
			}
		}
	})
}
