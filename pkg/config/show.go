package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Show returns a cluster as YAML, in the order of the documentation and with
// secrets masked. After Load it holds every default.
func Show(c *v1alpha1.Cluster) ([]byte, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration: %w", err)
	}
	var doc yaml.Node // JSON is YAML, and its order stays
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("encoding the configuration: %w", err)
	}
	blockStyle(&doc)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return nil, fmt.Errorf("encoding the configuration: %w", err)
	}
	return b.Bytes(), nil
}

func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// InitOptions say what Init writes; the zero value is a good start.
type InitOptions struct {
	Type           string   // kubernetes.type and etcd.type; default: kubeadm
	Addresses      []string // of the hosts, masters first; default: addresses of documentation
	Masters        int      // default: 1
	Workers        int      // default: as many as there are further addresses; without addresses: 1. Without workers, masters run pods
	VIP            string   // a virtual address for the API servers, held by one master at a time; default: none
	User           string   // login user; default: root
	PrivateKeyPath string   // default: SSH agent and usual keys
}

// Init returns a small commented cluster.yaml to start from. It validates,
// provided that name is a DNS label and the options are right; for a host given by
// name the internal address has to be filled in first.
func Init(name string, o InitOptions) (string, error) {
	o.Masters = max(o.Masters, 1)
	if len(o.Addresses) == 0 {
		for i := range o.Masters + cmp.Or(o.Workers, 1) {
			o.Addresses = append(o.Addresses, fmt.Sprintf("192.0.2.%d", 11+i))
		}
	}
	if n := len(o.Addresses); n < o.Masters || o.Workers > 0 && n != o.Masters+o.Workers {
		hosts := human.Count(o.Masters, "master")
		if o.Workers > 0 {
			hosts += " and " + human.Count(o.Workers, "worker")
		}
		return "", fmt.Errorf("%d addresses for %s", n, hosts)
	}
	o.Workers = len(o.Addresses) - o.Masters
	if o.Type == "" {
		o.Type = v1alpha1.TypeKubeadm
	}
	if o.User == "" {
		o.User = "root"
	}
	var spec v1alpha1.Spec
	if _, err := netip.ParseAddr(o.Addresses[0]); err == nil {
		spec.Hosts = []v1alpha1.Host{{InternalAddress: o.Addresses[0], Roles: []v1alpha1.Role{v1alpha1.RoleMaster}}}
	}
	defaultNetworks(&spec)
	setDefaults(reflect.ValueOf(&spec))
	var b strings.Builder
	err := starter.Execute(&b, struct {
		InitOptions
		Name, Version, Holder string
		Network               v1alpha1.Network
	}{o, name, DefaultKubernetes(), v1alpha1.BalancerKubeVIP, spec.Network})
	return b.String(), err
}

var starter = template.Must(template.New("cluster.yaml").Funcs(template.FuncMap{
	"inc": func(i int) int { return i + 1 },
	"ip":  func(a string) bool { _, err := netip.ParseAddr(a); return err == nil },
}).Parse(`# A Kubernetes cluster, made by: kubexm create cluster -f <this file>
# What a field means: kubexm config explain spec.hosts
# What is in effect, defaults included: kubexm config show -f <this file>
apiVersion: kubexm.io/v1alpha1
kind: Cluster
metadata:
  name: {{ .Name }}
spec:
  # How to log in to the hosts; each host may override it.
  global:
    user: {{ .User }}    # another user than root needs sudo
    port: 22
{{- if .PrivateKeyPath }}
    privateKeyPath: {{ .PrivateKeyPath }}
{{- else }}
    # privateKeyPath: ~/.ssh/id_ed25519    # default: SSH agent, then the usual keys
{{- end }}
    # passwordFrom: {env: NODE_PASSWORD}   # or file, or exec; so that no password stands here

  # One master or several, best an odd number; any number of workers. A master with the role worker runs ordinary pods, too.
  hosts:
{{- range $i, $a := .Addresses }}
  - name: node{{ inc $i }}
    address: {{ $a }}    # as this machine reaches it{{ if ip $a }}; internalAddress: as the other hosts reach it{{ else }}
    internalAddress:    # required, as address is a name: the IP address at which the other hosts reach it{{ end }}
    roles: [{{ if ge $i $.Masters }}worker{{ else }}master, etcd{{ if not $.Workers }}, worker{{ end }}{{ end }}]
{{- end }}

  kubernetes:
    type: {{ .Type }}    # kubeadm (static pods), or kubexm (binaries under systemd)
    version: {{ .Version }}
  etcd:
    type: {{ .Type }}
{{- if .VIP }}

  # Where clients reach the API servers: an address of the hosts' network that nobody else has. One master at a time holds it.
  loadBalancer:
    mode: {{ .Holder }}
    vip: {{ .VIP }}
{{- else if gt .Masters 1 }}

  # Every worker reaches the API servers through a proxy of its own. Other modes have a virtual address: kubexm config explain spec.loadBalancer.mode
  loadBalancer:
    mode: internal
{{- end }}

  # Neither may overlap the other or a host's network; they cannot be changed later.
  network:
    podCIDR: {{ .Network.PodCIDR }}
    serviceCIDR: {{ .Network.ServiceCIDR }}
`))
