//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// fleeting are resources that the cluster itself makes, renames and removes.
var fleeting = []string{
	"pods", "replicasets", "controllerrevisions", "events", "endpoints", "endpointslices", "leases", "certificatesigningrequests",
	"componentstatuses", "ipaddresses", "servicecidrs", "podmetrics", "nodemetrics", "csinodes", "secrets", "clustertrustbundles",
}

// objects adds all lasting objects of the API, without what is random in them.
func (s state) objects(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading objects: %w", err)
	}
	config.QPS = -1
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("reading objects: %w", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("reading objects: %w", err)
	}
	groups, err := server.ServerPreferredResources()
	if err != nil {
		return fmt.Errorf("reading objects: %w", err)
	}
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			return fmt.Errorf("reading objects: %w", err)
		}
		for _, r := range group.APIResources {
			if slices.Contains(fleeting, r.Name) || !slices.Contains(r.Verbs, "list") {
				continue
			}
			list, err := client.Resource(version.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("listing %s: %w", r.Name, err)
			}
			for i := range list.Items {
				if err := s.object(&list.Items[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// object adds one object.
func (s state) object(o *unstructured.Unstructured) error {
	for _, field := range [][]string{
		{"metadata", "uid"},
		{"metadata", "resourceVersion"},
		{"metadata", "creationTimestamp"},
		{"metadata", "managedFields"},
		{"metadata", "generation"},
		{"metadata", "selfLink"},
		{"status"},
		{"spec", "podCIDR"},
		{"spec", "podCIDRs"}, // who comes first gets the first
		{"metadata", "annotations", "flannel.alpha.coreos.com/backend-data"}, // a random MAC address
		{"metadata", "annotations", "kubeadm.alpha.kubernetes.io/cri-socket"},
	} {
		unstructured.RemoveNestedField(o.Object, field...)
	}
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	if o.GetName() == "kubexm" {
		delete(data, "id") // random
	}
	for key, value := range data {
		if data[key] = normalData(o.GetName(), value); strings.HasPrefix(key, "jws-kubeconfig-") { // of a bootstrap token, which goes away
			delete(data, key)
		}
	}
	if data != nil {
		if err := unstructured.SetNestedStringMap(o.Object, data, "data"); err != nil {
			return err
		}
	}
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return err
	}
	s[fmt.Sprintf("api %s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())] = string(text)
	return nil
}

// normalData takes the chance out of a value of a ConfigMap.
func normalData(object, value string) string {
	if object == "cluster-info" || strings.HasPrefix(value, "-----BEGIN") {
		return describePEM([]byte(value)) + normal("", pemBody.ReplaceAll([]byte(value), nil))
	}
	return value
}

// pemBody is a line between the marks of PEM.
var pemBody = regexp.MustCompile(`(?m)^[A-Za-z0-9+/=]{4,64}$`)
