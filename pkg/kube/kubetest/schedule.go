package kubetest

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// settle gives an object that is about to be stored its status. With Scheduled, Deployments have no pods while no node takes any.
func (s *Server) settle(obj *unstructured.Unstructured) {
	switch {
	case s.OnWrite != nil:
		s.OnWrite(obj)
	case s.Scheduled && obj.GetKind() == "Deployment" && !s.schedulable():
		obj.Object["status"] = map[string]any{
			"observedGeneration": obj.GetGeneration(), "replicas": int64(1), "updatedReplicas": int64(1), "unavailableReplicas": int64(1),
			"conditions": []any{map[string]any{"type": "Available", "status": "False", "message": "Deployment does not have minimum availability."}},
		}
	default:
		Settle(obj)
	}
}

// schedule lets Deployments follow a change of a node.
func (s *Server) schedule() {
	for at, obj := range s.objects {
		if s.Scheduled && obj.GetKind() == "Deployment" {
			is := obj.DeepCopy()
			s.settle(is)
			s.record(at, watch.Modified, is)
		}
	}
}

// schedulable reports whether a node takes pods.
func (s *Server) schedulable() bool {
	for _, obj := range s.objects {
		if closed, _, _ := unstructured.NestedBool(obj.Object, "spec", "unschedulable"); obj.GetKind() == "Node" && !closed {
			return true
		}
	}
	return false
}
