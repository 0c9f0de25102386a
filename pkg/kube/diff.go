package kube

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/util/diff"
)

// Diff returns what Apply would change, for people to read, or "" if nothing. The
// server itself is asked, so that defaults and normal forms never show as changes.
// The data of a Secret is not shown.
func (c *Client) Diff(ctx context.Context, objs ...*unstructured.Unstructured) (string, error) {
	texts := make([]string, len(objs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, obj := range inOrder(objs) {
		group.Go(func() (err error) {
			texts[i], err = c.diff(ctx, obj)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return "", err
	}
	return strings.Join(texts, ""), nil
}

func (c *Client) diff(ctx context.Context, obj *unstructured.Unstructured) (text string, err error) {
	for range 5 {
		live, err := c.Live(ctx, obj)
		if err != nil {
			return "", err
		}
		if live == nil { // and neither, perhaps, is its namespace or kind: nothing to ask
			return render(nil, obj)
		}
		after, err := c.apply(ctx, obj, metav1.DryRunAll)
		if err != nil {
			return "", err
		}
		text, err = render(live, after)
		if err != nil || text == "" || live.GetResourceVersion() == after.GetResourceVersion() {
			return text, err
		}
		// A controller wrote the object between the two answers: its change is not ours.
	}
	return text, nil
}

// render shows the way from before, which may be nil, to after.
func render(before, after *unstructured.Unstructured) (string, error) {
	var was, is string
	before, after = essence(before), essence(after)
	if after.GetKind() == "Secret" {
		hide(before, after)
	}
	var err error
	if before != nil {
		was, err = text(before)
	}
	if err == nil {
		is, err = text(after)
	}
	if err != nil {
		return "", fmt.Errorf("comparing %s: %w", title(after), err)
	}
	return diff.Unified(title(after), was, is), nil
}

func text(obj *unstructured.Unstructured) (string, error) {
	data, err := yaml.Marshal(obj.Object)
	return string(data), err
}

// essence is obj without what only the server writes.
func essence(obj *unstructured.Unstructured) *unstructured.Unstructured {
	if obj == nil {
		return nil
	}
	obj = obj.DeepCopy()
	delete(obj.Object, "status")
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	return obj
}

// hide replaces the values of two states of a Secret; only whether they differ stays visible.
func hide(before, after *unstructured.Unstructured) {
	for _, field := range [][]string{{"data"}, {"stringData"}, {"metadata", "annotations"}} {
		old := values(before, field)
		for key, value := range values(after, field) {
			mark := "(hidden)"
			if was, ok := old[key]; ok && !reflect.DeepEqual(was, value) {
				mark = "(hidden, other value)"
			}
			_ = unstructured.SetNestedField(after.Object, mark, append(field, key)...)
		}
		for key := range old {
			_ = unstructured.SetNestedField(before.Object, "(hidden)", append(field, key)...)
		}
	}
}

func values(obj *unstructured.Unstructured, field []string) map[string]any {
	if obj == nil {
		return nil
	}
	m, _, _ := unstructured.NestedMap(obj.Object, field...)
	return m
}
