package kube

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// FieldManager is the owner, in server-side apply, of the fields kubexm sets.
const FieldManager = "kubexm"

// parallel is how many requests one call sends at a time.
const parallel = 8

// ReadObjects reads the objects of YAML or JSON documents, in order. Lists are
// taken apart and empty documents left out. A field given twice is an error.
func ReadObjects(data []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	documents := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading document %d: %w", n, err)
		}
		objs, err := readDocument(doc)
		if err != nil {
			return nil, fmt.Errorf("reading document %d: %w", n, err)
		}
		all = append(all, objs...)
	}
}

func readDocument(doc []byte) ([]*unstructured.Unstructured, error) {
	data, err := yaml.YAMLToJSONStrict(doc)
	if err != nil || string(data) == "null" {
		return nil, err
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	objs := []*unstructured.Unstructured{obj}
	if obj.IsList() {
		list, err := obj.ToList()
		if err != nil {
			return nil, err
		}
		objs = nil
		for i := range list.Items {
			objs = append(objs, &list.Items[i])
		}
	}
	for _, o := range objs {
		if o.GetAPIVersion() == "" || o.GetKind() == "" || o.GetName() == "" {
			return nil, fmt.Errorf("an object needs apiVersion, kind and metadata.name; it has %q, %q, %q", o.GetAPIVersion(), o.GetKind(), o.GetName())
		}
	}
	return objs, nil
}

// Mark gives objects that have a name and nothing else, like many namespaces, a label: the API server does not remember who has applied nothing.
func Mark(objs []*unstructured.Unstructured) {
	for _, o := range objs {
		meta, _, _ := unstructured.NestedMap(o.Object, "metadata")
		delete(meta, "name")
		delete(meta, "namespace")
		if len(meta) == 0 && len(o.Object) == 3 { // with apiVersion and kind
			o.SetLabels(map[string]string{"app.kubernetes.io/managed-by": FieldManager})
		}
	}
}

// InNamespace puts those objects that name no namespace, and have one, into one, which comes first. What has none is known from the server, or from
// definitions among the objects.
func (c *Client) InNamespace(ctx context.Context, namespace string, objs []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	without := map[string]bool{}
	for _, o := range objs {
		if scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope"); o.GetKind() == "CustomResourceDefinition" && scope == "Cluster" {
			group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
			without[kind+"."+group] = true
		}
	}
	var all []*unstructured.Unstructured
	if !slices.ContainsFunc(objs, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" && o.GetName() == namespace }) {
		all = append(all, object("v1", "Namespace", namespace))
	}
	for _, o := range objs {
		kind, wide := o.GroupVersionKind(), false
		err := c.retry(ctx, "asking for kind "+kind.Kind, func(ctx context.Context) error {
			mapping, err := c.mapping(ctx, kind)
			if meta.IsNoMatchError(err) {
				wide = without[kind.Kind+"."+kind.Group]
				return nil
			}
			wide = err == nil && mapping.Scope.Name() == meta.RESTScopeNameRoot
			return err
		})
		if err != nil {
			return nil, err
		}
		if o.GetNamespace() == "" && !wide {
			o.SetNamespace(namespace)
		}
		all = append(all, o)
	}
	return all, nil
}

// Apply makes objects as given by server-side apply, owning the fields they name
// and taking these from any other owner. Namespaces go first, definitions of kinds
// next, the rest in the order given. A kind that is only just being defined is
// waited for, within the client's patience.
func (c *Client) Apply(ctx context.Context, objs ...*unstructured.Unstructured) error {
	for _, obj := range inOrder(objs) {
		if _, err := c.apply(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}

func inOrder(objs []*unstructured.Unstructured) []*unstructured.Unstructured {
	rank := map[string]int{"Namespace": -2, "CustomResourceDefinition": -1}
	return slices.SortedStableFunc(slices.Values(objs), func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(rank[a.GetKind()], rank[b.GetKind()])
	})
}

// apply sends one object and returns what it became, or with dryRun would become.
func (c *Client) apply(ctx context.Context, obj *unstructured.Unstructured, dryRun ...string) (after *unstructured.Unstructured, err error) {
	err = c.retry(ctx, "applying "+title(obj), func(ctx context.Context) error {
		on, err := c.on(ctx, obj)
		if err == nil {
			after, err = on.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: FieldManager, Force: true, DryRun: dryRun})
		}
		return err
	})
	if obj.GetKind() == "Job" && apierrors.IsInvalid(err) && strings.Contains(err.Error(), "field is immutable") {
		return c.again(ctx, obj, dryRun)
	}
	return after, err
}

// again makes a Job anew: what it runs cannot be changed.
func (c *Client) again(ctx context.Context, obj *unstructured.Unstructured, dryRun []string) (*unstructured.Unstructured, error) {
	if dryRun == nil {
		if err := c.Delete(ctx, obj); err != nil {
			return nil, err
		}
		return c.apply(ctx, obj)
	}
	after, err := c.Live(ctx, obj)
	if err != nil {
		return nil, err
	}
	var merged []byte
	was, err := json.Marshal(after)
	if err == nil {
		is, _ := json.Marshal(obj) // as the same was read from JSON
		merged, err = jsonpatch.MergePatch(was, is)
	}
	if err == nil {
		err = after.UnmarshalJSON(merged)
	}
	return after, err
}

// Live returns what the server has of an object: nil where there is no such
// object, namespace or kind.
func (c *Client) Live(ctx context.Context, obj *unstructured.Unstructured) (live *unstructured.Unstructured, err error) {
	err = c.retry(ctx, "reading "+title(obj), func(ctx context.Context) error {
		on, err := c.on(ctx, obj)
		if err == nil {
			live, err = on.Get(ctx, obj.GetName(), metav1.GetOptions{})
		}
		if absent(err) {
			live, err = nil, nil
		}
		return err
	})
	return live, err
}

// NotFound reports whether an error says that an object is not there.
func NotFound(err error) bool { return absent(err) }

// absent reports whether err says that there is no such object or no such kind.
func absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// Delete removes objects in the reverse of the order of Apply, and waits until
// they, with what their finalizers clean up, are gone. What is not there is right.
func (c *Client) Delete(ctx context.Context, objs ...*unstructured.Unstructured) error {
	objs = inOrder(objs)
	slices.Reverse(objs)
	background := metav1.DeletePropagationBackground
	for _, obj := range objs {
		err := c.retry(ctx, "deleting "+title(obj), func(ctx context.Context) error {
			on, err := c.on(ctx, obj)
			if err == nil {
				err = on.Delete(ctx, obj.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
			}
			if absent(err) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, obj := range objs {
		if err := c.waitGone(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}
