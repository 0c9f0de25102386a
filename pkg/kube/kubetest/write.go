package kubetest

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// write serves create, update and patch.
func (s *Server) write(r request) (any, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if r.subresource == "eviction" {
		if s.Budget != nil && !s.Budget(r.name) {
			return nil, apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		}
		if _, err := s.get(r.ref); err != nil {
			return nil, err
		}
		s.record(r.ref, watch.Deleted, s.objects[r.ref])
		return metav1.Status{Status: metav1.StatusSuccess}, nil
	}
	if _, ok := s.objects[ref{GroupVersionResource: namespaces, name: r.namespace}]; r.namespace != "" && !ok {
		return nil, apierrors.NewNotFound(namespaces.GroupResource(), r.namespace)
	}
	obj := &unstructured.Unstructured{}
	old := s.objects[r.ref]
	switch {
	case r.Method == http.MethodPatch:
		obj, err = s.patched(r, old, body)
	default:
		err = obj.UnmarshalJSON(body)
	}
	if err != nil {
		return nil, err
	}
	obj.SetNamespace(r.namespace)
	r.name = obj.GetName()
	old = s.objects[r.ref]
	switch {
	case r.Method == http.MethodPost && old != nil:
		return nil, apierrors.NewAlreadyExists(r.GroupResource(), r.name)
	case r.Method == http.MethodPut && old == nil:
		return nil, apierrors.NewNotFound(r.GroupResource(), r.name)
	case old != nil && obj.GetResourceVersion() != "" && obj.GetResourceVersion() != old.GetResourceVersion():
		return nil, apierrors.NewConflict(r.GroupResource(), r.name, errChanged)
	}
	return s.store(r.ref, obj, r.dryRun), nil
}

var (
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	errChanged = apierrors.NewBadRequest("the object has been modified; please apply your changes to the latest version and try again")
)

// store keeps obj unless it is what is there, and returns what is there then, or
// would be.
func (s *Server) store(at ref, obj *unstructured.Unstructured, dryRun bool) *unstructured.Unstructured {
	old, event := s.objects[at], watch.Modified
	if old == nil {
		event = watch.Added
		obj.SetUID(types.UID(at.Resource + "/" + at.namespace + "/" + at.name))
		if created := obj.GetCreationTimestamp(); created.IsZero() { // else it was put there to be that old
			obj.SetCreationTimestamp(metav1.Unix(1767225600, 0))
		}
		obj.SetGeneration(1)
	} else if !equality.Semantic.DeepEqual(content(old), content(obj)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
	s.settle(obj)
	if dryRun || old != nil && equality.Semantic.DeepEqual(old.Object, obj.Object) {
		return obj
	}
	s.record(at, event, obj)
	if obj.GetKind() == "Node" {
		s.schedule()
	}
	maps.Copy(s.kinds, defined(obj))
	return s.objects[at]
}

// content is what an object's generation counts: all but metadata and status.
func content(obj *unstructured.Unstructured) map[string]any {
	rest := map[string]any{}
	for key, value := range obj.Object {
		if key != "metadata" && key != "status" {
			rest[key] = value
		}
	}
	return rest
}

func (s *Server) patched(r request, old *unstructured.Unstructured, body []byte) (*unstructured.Unstructured, error) {
	how := types.PatchType(r.Header.Get("Content-Type"))
	switch {
	case how == types.ApplyYAMLPatchType:
		return s.applied(r, old, body)
	case old == nil:
		return nil, apierrors.NewNotFound(r.GroupResource(), r.name)
	}
	return merged(how, old, body)
}

func merged(kind types.PatchType, old *unstructured.Unstructured, body []byte) (*unstructured.Unstructured, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch kind {
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, body)
	case types.JSONPatchType:
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(body); err == nil {
			after, err = patch.Apply(before)
		}
	default:
		var typed runtime.Object
		if typed, err = scheme.Scheme.New(old.GroupVersionKind()); err == nil {
			after, err = strategicpatch.StrategicMergePatch(before, body, typed)
		}
	}
	obj := &unstructured.Unstructured{}
	if err == nil {
		err = obj.UnmarshalJSON(after)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return obj, nil
}

// applied merges as server-side apply does, ownership of fields included.
func (s *Server) applied(r request, old *unstructured.Unstructured, body []byte) (*unstructured.Unstructured, error) {
	patch := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON(body)
	if err == nil {
		err = patch.UnmarshalJSON(data)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	gvk := r.GroupVersion().WithKind(r.Kind)
	converter := managedfields.NewDeducedTypeConverter()
	if scheme.Scheme.Recognizes(gvk) && gvk.Group != "apiextensions.k8s.io" { // which Helm's library adds to it
		converter = applyconfigurations.NewTypeConverter(scheme.Scheme)
	}
	manager, err := managedfields.NewDefaultFieldManager(converter, plain{}, plain{}, plain{}, gvk, gvk.GroupVersion(), r.subresource, nil)
	if err != nil {
		return nil, err
	}
	if old == nil {
		old = &unstructured.Unstructured{}
		old.SetGroupVersionKind(gvk)
		old.SetName(r.name)
		old.SetNamespace(r.namespace)
	}
	query := r.URL.Query()
	force, _ := strconv.ParseBool(query.Get("force"))
	obj, err := manager.Apply(old.DeepCopy(), patch, query.Get("fieldManager"), force)
	if err != nil {
		return nil, err
	}
	after := obj.(*unstructured.Unstructured)
	was, _, _ := unstructured.NestedMap(old.Object, "spec", "template")
	is, _, _ := unstructured.NestedMap(after.Object, "spec", "template")
	if r.Kind == "Job" && was != nil && !equality.Semantic.DeepEqual(was, is) {
		return nil, apierrors.NewInvalid(gvk.GroupKind(), r.name, field.ErrorList{field.Invalid(field.NewPath("spec", "template"), "", "field is immutable")})
	}
	return after, nil
}

// plain is the conversion, defaulting and creation of objects that need none.
type plain struct{}

func (plain) Convert(any, any, any) error { return nil }
func (plain) ConvertToVersion(o runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return o, nil
}

func (plain) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
func (plain) Default(runtime.Object) {}
func (plain) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	return obj, nil
}
