package kube

import (
	"bytes"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestStored reads objects as API servers store them.
func TestStored(t *testing.T) {
	replicas := int32(3)
	var stored bytes.Buffer
	err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(&appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1", ResourceVersion: "7", Generation: 2, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas}, Status: appsv1.DeploymentStatus{Replicas: 3},
	}, &stored)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string][]byte{
		"protobuf": stored.Bytes(),
		"JSON":     []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"default","name":"web","uid":"1","resourceVersion":"7"},"spec":{"replicas":3},"status":{"replicas":3}}`),
	} {
		o, err := Stored(value)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
		if f, isFloat, _ := unstructured.NestedFloat64(o.Object, "spec", "replicas"); isFloat {
			n = int64(f)
		}
		if o.GetAPIVersion() != "apps/v1" || o.GetKind() != "Deployment" || o.GetName() != "web" || n != 3 || o.GetUID() != "" || o.GetResourceVersion() != "" || o.Object["status"] != nil || o.GetManagedFields() != nil {
			t.Errorf("%s: %v", name, o.Object)
		}
	}
	for _, bad := range []string{"", "k8s\x00rubbish", "{", "k8s:enc:aescbc:v1:key1:xyz"} {
		if o, err := Stored([]byte(bad)); err == nil {
			t.Errorf("%q is %v", bad, o)
		}
	}
}
