package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// unsupported lists fields that nothing acts on yet. They are refused where
// they are given, so that nobody believes in them. Delete a line (and adapt the
// field's default) when its feature comes.
var unsupported = []struct {
	path   string // of a field outside of lists
	values string // only these values; empty: any
}{
	{"spec.kubernetes.proxyMode", "none"},
	{"spec.kubernetes.apiServer.audit", ""},
	{"spec.kubernetes.apiServer.encryption", ""},
	{"spec.kubernetes.autoRenewCerts", "true"},
	{"spec.etcd.autoBackup.enabled", "true"},
	{"spec.etcd.autoBackup.schedule", ""},
	{"spec.etcd.autoBackup.dir", ""},
	{"spec.etcd.autoBackup.keep", ""},
	{"spec.etcd.autoDefrag.enabled", "true"},
	{"spec.etcd.autoDefrag.schedule", ""},
	{"spec.runtime.type", "docker cri-o isulad"},
	{"spec.network.plugin", "calico cilium kube-router"},
	{"spec.network.calico", ""},
	{"spec.network.cilium", ""},
	{"spec.network.kubeRouter", ""},
	{"spec.dns.nodeLocalDNS.enabled", "true"},
	{"spec.dns.nodeLocalDNS.ip", ""},
	{"spec.storage", ""},
	{"spec.addons", ""},
}

const notYet = "not supported yet"

// refuseUnsupported reports a value that nothing acts on. It is decoded all the
// same: the other rules hold for it, too.
func (d *decoder) refuseUnsupported(n *yaml.Node, path string) {
	for _, u := range unsupported {
		switch {
		case u.path != path:
		case u.values == "":
			d.errs = append(d.errs, Error{Line: n.Line, Path: path, Msg: notYet})
		case slices.Contains(strings.Fields(u.values), n.Value):
			d.errs = append(d.errs, Error{Line: n.Line, Path: path, Value: n.Value, Msg: notYet})
		}
	}
}
