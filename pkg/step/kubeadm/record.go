package kubeadm

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/step"
)

// ClusterConfiguration is what kubeadm-config in the cluster is to say.
func ClusterConfiguration(c *cluster.Cluster, etcd Etcd) []byte {
	return c.YAML(clusterConfig(c, etcd))
}

// ConfigMaps keeps what kubeadm reads from the cluster, when masters and workers join: its configuration, and what all
// kubelets have in common. kubeadm writes both once.
func ConfigMaps(c *cluster.Cluster, etcd Etcd) step.Step {
	one := func(name, key string, document any) corev1.ConfigMap {
		return corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name},
			Data:       map[string]string{key: string(c.YAML(document))},
		}
	}
	return step.Apply{What: "kubeadm configuration", API: c.AnyAPI(), Objects: c.YAML(corev1.ConfigMapList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"},
		Items: []corev1.ConfigMap{
			one("kubeadm-config", "ClusterConfiguration", clusterConfig(c, etcd)),
			one("kubelet-config", "kubelet", c.KubeletConfig("")),
		},
	})}
}
