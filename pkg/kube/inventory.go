package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Inventory is the name of the ConfigMap in kube-system that lists what ApplySet has applied: under the name of each set
// its objects, one a line, sorted.
const Inventory = "kubexm-inventory"

// set is what is applied under one name, and what was before.
type set struct {
	key    string
	was    []string                     // recorded
	wanted []string                     // to be recorded once all is done
	prune  []*unstructured.Unstructured // applied once, wanted no more
}

// DiffSet returns what ApplySet would change, or "" if nothing.
func (c *Client) DiffSet(ctx context.Context, name string, objs ...*unstructured.Unstructured) (string, error) {
	text, err := c.Diff(ctx, objs...)
	if err != nil {
		return "", err
	}
	s, err := c.set(ctx, name, objs)
	if err != nil {
		return "", err
	}
	for _, obj := range s.prune {
		text += "- " + title(obj) + "\n"
	}
	if text == "" && !slices.Equal(s.was, s.wanted) {
		text = "record what was applied in ConfigMap " + metav1.NamespaceSystem + "/" + Inventory + "\n"
	}
	return text, nil
}

// ApplySet is Apply of all objects of a set, and removes those that an earlier ApplySet of that name has applied and that are no
// part of it any more: only what kubexm still manages and no chart wants to be kept, and no namespace or definition of a kind that has objects of others. What
// is about to be applied is recorded first, and what is gone is forgotten last.
func (c *Client) ApplySet(ctx context.Context, name string, objs ...*unstructured.Unstructured) error {
	s, err := c.set(ctx, name, objs)
	if err != nil {
		return err
	}
	both := sorted(append(slices.Clone(s.was), s.wanted...))
	if err := c.record(ctx, s.key, s.was, both); err != nil {
		return err
	}
	if err := c.Apply(ctx, objs...); err != nil {
		return err
	}
	if err := c.Delete(ctx, s.prune...); err != nil {
		return err
	}
	return c.record(ctx, s.key, both, s.wanted)
}

// OtherSets returns the names under which ApplySet has recorded objects, but for those that are given.
func (c *Client) OtherSets(ctx context.Context, names ...string) (others []string, err error) {
	recorded, err := c.recorded(ctx)
	for key := range recorded {
		if !slices.ContainsFunc(names, func(n string) bool { return setKey(n) == key }) {
			others = append(others, key)
		}
	}
	return sorted(others), err
}

func setKey(name string) string { return strings.ReplaceAll(name, " ", "-") }

// set finds what is to be done about what a set had applied before.
func (c *Client) set(ctx context.Context, name string, objs []*unstructured.Unstructured) (*set, error) {
	recorded, err := c.recorded(ctx)
	if err != nil {
		return nil, err
	}
	s := &set{key: setKey(name)}
	s.was = recorded[s.key]
	wanted := map[string]bool{}
	for _, obj := range objs {
		s.wanted = append(s.wanted, line(obj))
		wanted[identity(obj)] = true
	}
	for key, lines := range recorded {
		for _, l := range lines {
			if obj := reference(l); obj != nil && key != s.key {
				wanted[identity(obj)] = true
			}
		}
	}
	going := map[string]bool{}
	var holders []*unstructured.Unstructured // namespaces and definitions go when what is in them does
	for _, l := range s.was {
		obj := reference(l)
		if obj == nil || wanted[identity(obj)] {
			continue
		}
		live, err := c.Live(ctx, obj)
		switch {
		case err != nil:
			return nil, err
		case live == nil || !managed(live) || live.GetAnnotations()["helm.sh/resource-policy"] == "keep":
		case obj.GetKind() == "Namespace" || obj.GetKind() == "CustomResourceDefinition":
			holders = append(holders, live)
		default:
			going[identity(obj)] = true
			s.prune = append(s.prune, obj)
		}
	}
	for _, obj := range holders {
		others, err := c.holdsOthers(ctx, obj, going)
		if err != nil {
			return nil, err
		}
		if others {
			s.wanted = append(s.wanted, line(obj))
		} else {
			s.prune = append(s.prune, obj)
		}
	}
	s.wanted = sorted(s.wanted)
	return s, nil
}

// recorded is the inventory by the names of sets. It is read once, and then known.
func (c *Client) recorded(ctx context.Context) (map[string][]string, error) {
	if err := c.recording.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("reading what was applied: %w", err)
	}
	defer c.recording.Release(1)
	if c.applied != nil {
		return c.applied, nil
	}
	err := c.retry(ctx, "reading what was applied", func(ctx context.Context) error {
		is, err := c.Typed.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, Inventory, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			is, err = &corev1.ConfigMap{}, nil
		}
		if err == nil {
			c.applied = entries(is)
		}
		return err
	})
	return c.applied, err
}

// record writes what a set has applied, where that is not what was recorded.
func (c *Client) record(ctx context.Context, key string, was, lines []string) error {
	if slices.Equal(was, lines) {
		return nil
	}
	var value *string
	if lines != nil {
		text := strings.Join(lines, "\n") + "\n"
		value = &text
	}
	patch, err := json.Marshal(map[string]map[string]*string{"data": {key: value}})
	if err != nil {
		return fmt.Errorf("recording what is applied: %w", err)
	}
	if err := c.recording.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("recording what is applied: %w", err)
	}
	defer c.recording.Release(1)
	return c.retry(ctx, "recording what is applied", func(ctx context.Context) error {
		maps := c.Typed.CoreV1().ConfigMaps(metav1.NamespaceSystem)
		is, err := maps.Patch(ctx, Inventory, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
		switch {
		case apierrors.IsNotFound(err) && value == nil:
			return nil
		case apierrors.IsNotFound(err):
			first := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: Inventory}, Data: map[string]string{key: *value}}
			is, err = maps.Create(ctx, first, metav1.CreateOptions{FieldManager: FieldManager})
			if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) { // or the namespace, which a new API server makes soon
				err = fault.Transient(err)
			}
		}
		if err == nil {
			c.applied = entries(is)
		}
		return err
	})
}

func entries(is *corev1.ConfigMap) map[string][]string {
	all := map[string][]string{}
	for key, text := range is.Data {
		all[key] = sorted(strings.Split(strings.TrimSpace(text), "\n"))
	}
	return all
}

func sorted(lines []string) []string {
	slices.Sort(lines)
	return slices.Compact(lines)
}

// line is the entry of an object: "apps/v1 DaemonSet kube-system/agent", "v1 Namespace agent".
func line(obj *unstructured.Unstructured) string { return obj.GetAPIVersion() + " " + title(obj) }

// reference is the object of an entry; nil: it is none.
func reference(line string) *unstructured.Unstructured {
	words := strings.Fields(line)
	if len(words) != 3 {
		return nil
	}
	namespace, name, ok := strings.Cut(words[2], "/")
	if !ok {
		namespace, name = "", namespace
	}
	obj := object(words[0], words[1], name)
	obj.SetNamespace(namespace)
	return obj
}

// identity tells objects apart, whatever version of their kind is asked for.
func identity(obj *unstructured.Unstructured) string {
	kind := obj.GroupVersionKind()
	return kind.Group + " " + kind.Kind + " " + obj.GetNamespace() + "/" + obj.GetName()
}

// managed reports whether kubexm applies some field of an object.
func managed(live *unstructured.Unstructured) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == FieldManager && f.Operation == metav1.ManagedFieldsOperationApply
	})
}

// holdsOthers reports whether there is anything in a namespace, or of a defined kind, but what is going anyway.
func (c *Client) holdsOthers(ctx context.Context, holder *unstructured.Unstructured, going map[string]bool) (others bool, err error) {
	err = c.retry(ctx, "listing what "+title(holder)+" owns", func(ctx context.Context) error {
		others = false
		kinds, namespace, err := c.holds(ctx, holder)
		if failed, is := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err); is {
			for _, err := range failed.Groups {
				if _, lost := errors.AsType[*url.Error](err); lost { // the server itself
					return err
				}
			}
			others = true // nobody can tell
			return nil
		}
		if err != nil {
			return err
		}
		for _, kind := range kinds {
			list, err := c.Dynamic.Resource(kind).Namespace(namespace).List(ctx, metav1.ListOptions{})
			if absent(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return err
			}
			others = others || slices.ContainsFunc(list.Items, func(o unstructured.Unstructured) bool { return !going[identity(&o)] && !automatic(&o) })
		}
		return nil
	})
	return others, err
}

// holds returns the kinds of objects that a namespace or a definition may hold, and where.
func (c *Client) holds(ctx context.Context, holder *unstructured.Unstructured) (kinds []schema.GroupVersionResource, namespace string, err error) {
	if holder.GetKind() == "CustomResourceDefinition" {
		group, _, _ := unstructured.NestedString(holder.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(holder.Object, "spec", "names", "plural")
		versions, _, _ := unstructured.NestedSlice(holder.Object, "spec", "versions")
		for _, v := range versions {
			if is, ok := v.(map[string]any); ok && is["served"] == true {
				name, _ := is["name"].(string)
				kinds = append(kinds, schema.GroupVersionResource{Group: group, Version: name, Resource: plural})
			}
		}
		return kinds, "", nil
	}
	_, lists, err := c.server.ServerGroupsAndResourcesWithContext(ctx)
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, "", err
		}
		for _, r := range list.APIResources {
			stored := slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") // what is computed, as metrics are, is not
			if r.Namespaced && stored {
				kinds = append(kinds, group.WithResource(r.Name))
			}
		}
	}
	return kinds, holder.GetName(), err
}

// automatic reports whether an object goes with another one, or Kubernetes makes it in every namespace.
func automatic(obj *unstructured.Unstructured) bool {
	made := map[string]string{"ConfigMap": "kube-root-ca.crt", "ServiceAccount": "default"}
	return len(obj.GetOwnerReferences()) > 0 || obj.GetName() == made[obj.GetKind()] ||
		slices.Contains([]string{"Event", "Endpoints", "EndpointSlice"}, obj.GetKind())
}
