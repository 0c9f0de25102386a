package kube

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// Stored reads an object as etcd has it: in protobuf or JSON. What an API server has made of it, like its UID and its status, is left out, so that it can be applied again.
func Stored(value []byte) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	switch {
	case bytes.HasPrefix(value, []byte("k8s:enc:")):
		return nil, fmt.Errorf("it is encrypted at rest, with the provider %s", bytes.Split(value, []byte(":"))[2])
	case bytes.HasPrefix(value, []byte("{")): // of a CustomResourceDefinition
		if err := json.Unmarshal(value, &o.Object); err != nil {
			return nil, fmt.Errorf("reading the object: %w", err)
		}
	default:
		typed, kind, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("reading the object: %w", err)
		}
		if o.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
			return nil, fmt.Errorf("reading the object: %w", err)
		}
		o.SetGroupVersionKind(*kind)
	}
	for _, field := range [][]string{{"status"}, {"metadata", "uid"}, {"metadata", "resourceVersion"}, {"metadata", "generation"}, {"metadata", "creationTimestamp"}, {"metadata", "managedFields"}} {
		unstructured.RemoveNestedField(o.Object, field...)
	}
	return o, nil
}
