package kube

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/util/diff"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Marks are the labels, annotations and taints that kubexm puts on a node.
type Marks struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Taints      []corev1.Taint    `json:"taints,omitempty"` // one for each key and effect
}

// marked is the annotation that lists what kubexm put on a node, so that what is
// no longer wanted can be told from other people's marks: LABEL, @ANNOTATION, TAINT:EFFECT.
const marked = "kubexm.io/marks"

// MarkNode gives a node its marks, takes away those that an
// earlier call gave, and leaves all others.
func (c *Client) MarkNode(ctx context.Context, name string, marks Marks) error {
	return c.retry(ctx, "marking node "+name, func(ctx context.Context) error {
		node, err := c.Typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		patch, err := marks.patch(node)
		if err != nil || patch == nil {
			return err
		}
		_, err = c.Typed.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
		if apierrors.IsConflict(err) {
			return fault.Transient(err)
		}
		return err
	})
}

// DiffMarks returns what MarkNode would change, or "" if nothing.
func (c *Client) DiffMarks(ctx context.Context, name string, marks Marks) (text string, err error) {
	err = c.retry(ctx, "reading node "+name, func(ctx context.Context) error {
		node, err := c.Typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var texts [2]string
		for i, n := range []*corev1.Node{node, marks.put(node)} {
			data, err := yaml.Marshal(struct {
				Marks
				Ours string `json:"kubexmMarks,omitempty"`
			}{Marks{n.Labels, annotated(n), n.Spec.Taints}, n.Annotations[marked]})
			if err != nil {
				return err
			}
			texts[i] = string(data)
		}
		text = diff.Unified("Node "+name, texts[0], texts[1])
		return nil
	})
	return text, err
}

// annotated returns the annotations of a node that kubexm put there.
func annotated(node *corev1.Node) map[string]string {
	all := map[string]string{}
	for _, mark := range strings.Fields(node.Annotations[marked]) {
		if key, is := strings.CutPrefix(mark, "@"); is {
			all[key] = node.Annotations[key]
		}
	}
	return all
}

// put returns node as it is to be.
func (m Marks) put(node *corev1.Node) *corev1.Node {
	node = node.DeepCopy()
	earlier := strings.Fields(node.Annotations[marked])
	maps.DeleteFunc(node.Labels, func(key, _ string) bool { return slices.Contains(earlier, key) })
	maps.DeleteFunc(node.Annotations, func(key, _ string) bool { return slices.Contains(earlier, "@"+key) })
	ours := slices.Sorted(maps.Keys(m.Labels))
	for _, key := range ours {
		metav1.SetMetaDataLabel(&node.ObjectMeta, key, m.Labels[key])
	}
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, m.Annotations[key])
		ours = append(ours, "@"+key)
	}
	for _, t := range m.Taints {
		ours = append(ours, t.Key+":"+string(t.Effect))
	}
	// A wanted taint that is there keeps its place and time: order is no change.
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		mark := t.Key + ":" + string(t.Effect)
		return slices.Contains(earlier, mark) && !slices.Contains(ours, mark)
	})
	for _, t := range m.Taints {
		i := slices.IndexFunc(node.Spec.Taints, func(has corev1.Taint) bool { return has.MatchTaint(&t) })
		if i < 0 {
			node.Spec.Taints = append(node.Spec.Taints, t)
		} else {
			node.Spec.Taints[i].Value = t.Value
		}
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, marked, strings.Join(ours, " "))
	return node
}

// patch makes the patch that puts the marks on node, or nil where all is right. The
// server refuses it if somebody has changed the node since it was read.
func (m Marks) patch(node *corev1.Node) ([]byte, error) {
	before, after := node.DeepCopy(), m.put(node)
	if apiequality.Semantic.DeepEqual(before, after) {
		return nil, nil
	}
	before.ResourceVersion = "" // what differs is what the patch carries
	was, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	is, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(was, is, corev1.Node{})
}

// InternalIPs returns the addresses of that type in spec.addresses of each object of a kind that has no namespaces; of a kind that there is not, none.
func (c *Client) InternalIPs(ctx context.Context, apiVersion, kind string) (map[string][]string, error) {
	all := map[string][]string{}
	err := c.retry(ctx, "listing objects "+kind, func(ctx context.Context) error {
		on, err := c.on(ctx, object(apiVersion, kind, ""))
		if absent(err) {
			return nil
		}
		if err != nil {
			return err
		}
		list, err := on.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		clear(all) // of a former try
		for _, o := range list.Items {
			addresses, _, _ := unstructured.NestedSlice(o.Object, "spec", "addresses")
			for _, a := range addresses {
				if a, _ := a.(map[string]any); a["type"] == string(corev1.NodeInternalIP) {
					ip, _ := a["ip"].(string)
					all[o.GetName()] = append(all[o.GetName()], ip)
				}
			}
		}
		return nil
	})
	return all, err
}

// Nodes are all nodes, by their names.
func (c *Client) Nodes(ctx context.Context) (all map[string]*corev1.Node, err error) {
	err = c.retry(ctx, "listing nodes", func(ctx context.Context) error {
		list, err := c.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		all = map[string]*corev1.Node{}
		if err == nil {
			for i := range list.Items {
				all[list.Items[i].Name] = &list.Items[i]
			}
		}
		return err
	})
	return all, err
}
