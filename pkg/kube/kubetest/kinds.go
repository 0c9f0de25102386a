package kubetest

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type kind struct {
	Kind       string
	namespaced bool
}

// builtin lists what a new server serves. A kind with a star has no namespace.
func builtin() map[schema.GroupVersionResource]kind {
	kinds := map[schema.GroupVersionResource]kind{}
	for group, names := range map[string]string{
		"v1":                              "Namespace* Node* PersistentVolume* Pod Service ServiceAccount ConfigMap Secret Event Endpoints PersistentVolumeClaim ReplicationController ResourceQuota LimitRange",
		"apps/v1":                         "Deployment DaemonSet StatefulSet ReplicaSet",
		"batch/v1":                        "Job CronJob",
		"rbac.authorization.k8s.io/v1":    "ClusterRole* ClusterRoleBinding* Role RoleBinding",
		"policy/v1":                       "PodDisruptionBudget",
		"autoscaling/v2":                  "HorizontalPodAutoscaler",
		"networking.k8s.io/v1":            "NetworkPolicy Ingress IngressClass* IPAddress*",
		"storage.k8s.io/v1":               "StorageClass* CSIDriver* VolumeAttributesClass*",
		"scheduling.k8s.io/v1":            "PriorityClass*",
		"coordination.k8s.io/v1":          "Lease",
		"discovery.k8s.io/v1":             "EndpointSlice",
		"certificates.k8s.io/v1":          "CertificateSigningRequest*",
		"admissionregistration.k8s.io/v1": "MutatingWebhookConfiguration* ValidatingWebhookConfiguration* ValidatingAdmissionPolicy* ValidatingAdmissionPolicyBinding*",
		"apiextensions.k8s.io/v1":         "CustomResourceDefinition*",
		"apiregistration.k8s.io/v1":       "APIService*",
	} {
		gv, _ := schema.ParseGroupVersion(group)
		for name := range strings.FieldsSeq(names) {
			name, cluster := strings.CutSuffix(name, "*")
			plural, _ := meta.UnsafeGuessKindToResource(gv.WithKind(name))
			if name == "Endpoints" {
				plural.Resource = "endpoints"
			}
			kinds[plural] = kind{name, !cluster}
		}
	}
	return kinds
}

// defined returns what a CustomResourceDefinition defines; nothing for other objects.
func defined(obj *unstructured.Unstructured) map[schema.GroupVersionResource]kind {
	if obj.GetKind() != "CustomResourceDefinition" {
		return nil
	}
	text := func(fields ...string) string {
		v, _, _ := unstructured.NestedString(obj.Object, fields...)
		return v
	}
	kinds := map[schema.GroupVersionResource]kind{}
	versions, _, _ := unstructured.NestedSlice(obj.Object, "spec", "versions")
	for _, v := range versions {
		version, _, _ := unstructured.NestedString(v.(map[string]any), "name")
		at := schema.GroupVersionResource{Group: text("spec", "group"), Version: version, Resource: text("spec", "names", "plural")}
		kinds[at] = kind{text("spec", "names", "kind"), text("spec", "scope") == "Namespaced"}
	}
	return kinds
}

func (s *Server) resourceOf(gvk schema.GroupVersionKind) schema.GroupVersionResource {
	for at, k := range s.kinds {
		if at.GroupVersion() == gvk.GroupVersion() && k.Kind == gvk.Kind {
			return at
		}
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural
}

// groups answers the first question of discovery.
func (s *Server) groups(core bool) any {
	if core {
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	}
	versions := map[string][]metav1.GroupVersionForDiscovery{}
	for at := range s.kinds {
		gv := metav1.GroupVersionForDiscovery{GroupVersion: at.GroupVersion().String(), Version: at.Version}
		if at.Group != "" && !slices.Contains(versions[at.Group], gv) {
			versions[at.Group] = append(versions[at.Group], gv)
		}
	}
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for name, v := range versions {
		list.Groups = append(list.Groups, metav1.APIGroup{Name: name, Versions: v, PreferredVersion: v[0]})
	}
	slices.SortFunc(list.Groups, func(a, b metav1.APIGroup) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// resources answers the second question of discovery.
func (s *Server) resources(gv schema.GroupVersion) any {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for at, k := range s.kinds {
		if at.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: at.Resource, Kind: k.Kind, Namespaced: k.namespaced,
				Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
			})
		}
	}
	slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Settle gives an object the status that the controllers of a healthy cluster
// with one node would give it in the end.
func Settle(obj *unstructured.Unstructured) {
	replicas, ok, _ := unstructured.NestedInt64(obj.Object, "spec", "replicas")
	if !ok {
		replicas = 1
	}
	is := func(condition string) []any { return []any{map[string]any{"type": condition, "status": "True"}} }
	status := map[string]any{"observedGeneration": obj.GetGeneration()}
	switch obj.GetKind() {
	case "Deployment", "StatefulSet", "ReplicaSet":
		for _, count := range []string{"replicas", "readyReplicas", "availableReplicas"} {
			status[count] = replicas
		}
		if obj.GetKind() == "StatefulSet" {
			status["currentReplicas"] = replicas
		}
		if obj.GetKind() != "ReplicaSet" {
			status["updatedReplicas"] = replicas
		}
		status["conditions"] = is("Available")
	case "DaemonSet":
		for _, count := range []string{"desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"} {
			status[count] = int64(1)
		}
	case "Job":
		status = map[string]any{"succeeded": int64(1), "conditions": is("Complete")}
	case "CustomResourceDefinition":
		status = map[string]any{"conditions": is("Established")}
	case "Namespace":
		status = map[string]any{"phase": "Active"}
	case "PersistentVolumeClaim":
		status = map[string]any{"phase": "Bound"}
	default:
		return
	}
	obj.Object["status"] = status
}
