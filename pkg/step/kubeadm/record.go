package kubeadm

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/step"
)

// ClusterConfiguration is what kubeadm-config in the cluster is to say.
func ClusterConfiguration(c *cluster.Cluster, etcd Etcd) []byte {
	return c.YAML(clusterConfig(c, etcd))
}

// ConfigMaps keeps what kubeadm reads from the cluster, when masters and workers join: its configuration, what all
// kubelets have in common, and where the cluster is. kubeadm writes them once.
func ConfigMaps(c *cluster.Cluster, etcd Etcd) step.Step {
	one := func(namespace, name, key, text string) corev1.ConfigMap {
		return corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Data:       map[string]string{key: text},
		}
	}
	info, err := pki.ClusterInfo("https://"+c.EndpointHost(), c.Trust(pki.Kubernetes))
	c.Check(err)
	return step.Apply{What: "kubeadm configuration", API: c.AnyAPI(), Objects: c.YAML(corev1.ConfigMapList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"},
		Items: []corev1.ConfigMap{
			one(metav1.NamespaceSystem, "kubeadm-config", "ClusterConfiguration", string(c.YAML(clusterConfig(c, etcd)))),
			one(metav1.NamespaceSystem, "kubelet-config", "kubelet", string(c.YAML(c.KubeletConfig("")))),
			one(metav1.NamespacePublic, "cluster-info", "kubeconfig", info),
		},
	})}
}
