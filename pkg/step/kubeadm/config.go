package kubeadm

import (
	"bytes"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
)

// The part of kubeadm's configuration that kubexm uses. kubeadm's own types
// cannot be imported.
//
// Facts: https://kubernetes.io/docs/reference/config-api/kubeadm-config.v1beta4

type arg struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type volume struct {
	Name      string `json:"name"`
	HostPath  string `json:"hostPath"`
	MountPath string `json:"mountPath"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
	PathType  string `json:"pathType,omitempty"`
}

type component struct {
	ExtraArgs    []arg    `json:"extraArgs,omitempty"`
	ExtraVolumes []volume `json:"extraVolumes,omitempty"`
	CertSANs     []string `json:"certSANs,omitempty"`
}

type image struct {
	ImageTag string `json:"imageTag,omitempty"`
}

type localEtcd struct {
	image
	DataDir   string `json:"dataDir"`
	ExtraArgs []arg  `json:"extraArgs,omitempty"`
}

// Etcd is the etcd section of kubeadm's configuration: one of the two.
type Etcd struct {
	Local    *localEtcd            `json:"local,omitempty"`
	External *cluster.EtcdEndpoint `json:"external,omitempty"`
}

type networking struct {
	DNSDomain     string `json:"dnsDomain"`
	PodSubnet     string `json:"podSubnet"`
	ServiceSubnet string `json:"serviceSubnet"`
}

type clusterConfiguration struct {
	metav1.TypeMeta
	ClusterName          string     `json:"clusterName"`
	KubernetesVersion    string     `json:"kubernetesVersion"`
	ControlPlaneEndpoint string     `json:"controlPlaneEndpoint"`
	Networking           networking `json:"networking"`
	Etcd                 Etcd       `json:"etcd"`
	APIServer            component  `json:"apiServer"`
	ControllerManager    component  `json:"controllerManager"`
	Scheduler            component  `json:"scheduler"`

	CertificateValidityPeriod metav1.Duration `json:"certificateValidityPeriod"`
}

type apiEndpoint struct {
	AdvertiseAddress string `json:"advertiseAddress"`
	BindPort         int    `json:"bindPort"`
}

type nodeRegistration struct {
	Name            string         `json:"name"`
	CRISocket       string         `json:"criSocket"`
	Taints          []corev1.Taint `json:"taints"`
	ImagePullPolicy string         `json:"imagePullPolicy"`
}

type bootstrapToken struct {
	TTL metav1.Duration `json:"ttl"`
}

type patches struct {
	Directory string `json:"directory"`
}

type initConfiguration struct {
	metav1.TypeMeta
	BootstrapTokens  []bootstrapToken `json:"bootstrapTokens"`
	LocalAPIEndpoint apiEndpoint      `json:"localAPIEndpoint"`
	NodeRegistration nodeRegistration `json:"nodeRegistration"`
	Patches          patches          `json:"patches"`
}

type discoveryFile struct {
	KubeConfigPath string `json:"kubeConfigPath"`
}

type discovery struct {
	File discoveryFile `json:"file"`
}

type controlPlane struct {
	LocalAPIEndpoint apiEndpoint `json:"localAPIEndpoint"`
}

type joinConfiguration struct {
	metav1.TypeMeta
	ControlPlane     *controlPlane    `json:"controlPlane,omitempty"`
	Discovery        discovery        `json:"discovery"`
	NodeRegistration nodeRegistration `json:"nodeRegistration"`
	Patches          *patches         `json:"patches,omitempty"`
}

func kind(k string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "kubeadm.k8s.io/v1beta4", Kind: k}
}

func args(m map[string]string) []arg {
	var all []arg
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, arg{k, m[k]})
	}
	return all
}

// registration is how a node joins. The flags of its kubelet are in the unit.
func registration(c *cluster.Cluster, host string) nodeRegistration {
	return nodeRegistration{Name: host, CRISocket: plugin.RuntimeOf(c.Spec).Endpoint(), Taints: c.Taints(host), ImagePullPolicy: "IfNotPresent"}
}

func clusterConfig(c *cluster.Cluster, etcd Etcd) clusterConfiguration {
	k := c.Spec.Kubernetes
	with := func(x v1alpha1.Component, volumes []v1alpha1.Volume, flags map[string]string) component {
		if gates := c.FeatureGates(); gates != "" {
			flags["feature-gates"] = gates
		}
		maps.Copy(flags, x.ExtraArgs)
		is := component{ExtraArgs: args(flags)}
		for _, v := range volumes {
			is.ExtraVolumes = append(is.ExtraVolumes, volume(v))
		}
		return is
	}
	conf := clusterConfiguration{
		TypeMeta: kind("ClusterConfiguration"), ClusterName: c.Name, KubernetesVersion: k.Version, ControlPlaneEndpoint: c.EndpointHost(),
		Networking: networking{k.DNSDomain, c.Spec.Network.PodCIDR, c.Spec.Network.ServiceCIDR}, Etcd: etcd,
		APIServer:                 with(k.APIServer.Component, k.APIServer.ExtraVolumes, c.APIServerArgs()),
		Scheduler:                 with(k.Scheduler.Component, k.Scheduler.ExtraVolumes, map[string]string{}),
		CertificateValidityPeriod: metav1.Duration{Duration: time.Duration(k.CertificateValidityDays) * 24 * time.Hour},
		ControllerManager:         with(k.ControllerManager.Component, k.ControllerManager.ExtraVolumes, c.ControllerManagerArgs()),
	}
	conf.APIServer.CertSANs = c.APIServerSANs() // kubexm makes the certificates; kubeadm checks whether they have these
	return conf
}

// document is what kubeadm reads on a master: how it is made, what the control plane is to be, and
// what all kubelets have in common.
func document(c *cluster.Cluster, host string, etcd Etcd) []byte {
	return bytes.Join([][]byte{
		c.YAML(initConfiguration{
			TypeMeta: kind("InitConfiguration"), BootstrapTokens: []bootstrapToken{{TTL: metav1.Duration{Duration: time.Minute}}},
			LocalAPIEndpoint: apiEndpoint{c.IP(host), c.APIPort()}, NodeRegistration: registration(c, host), Patches: patches{patchesDir},
		}),
		c.YAML(clusterConfig(c, etcd)),
		c.YAML(c.KubeletConfig("")),
	}, []byte("---\n"))
}
