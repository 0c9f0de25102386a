package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// NotReady returns what WaitReady would wait for, "" if nothing.
func (c *Client) NotReady(ctx context.Context, objs ...*unstructured.Unstructured) (string, error) {
	for _, obj := range objs {
		if missing, err := c.missing(ctx, obj, c.rolledOut(ctx)); err != nil || missing != "" {
			return missing, err
		}
	}
	return "", nil
}

// NodeNotReady returns what WaitNodeReady would wait for, "" if nothing.
func (c *Client) NodeNotReady(ctx context.Context, name string) (string, error) {
	return c.missing(ctx, object("v1", "Node", name), nodeReady)
}

// NodeNotBack returns what WaitNodeBack would wait for, "" if nothing.
func (c *Client) NodeNotBack(ctx context.Context, name, boot string) (string, error) {
	return c.missing(ctx, object("v1", "Node", name), nodeBack(boot))
}

func (c *Client) missing(ctx context.Context, obj *unstructured.Unstructured, judge verdict) (string, error) {
	live, err := c.Live(ctx, obj)
	if err != nil {
		return "", err
	}
	done, seen, err := judge(live)
	if err != nil || !done {
		return title(obj) + ": " + seen, err
	}
	return "", nil
}
