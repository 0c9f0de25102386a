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
	{"spec.kubernetes.apiServer.audit", ""},
	{"spec.kubernetes.apiServer.encryption", ""},
	{"spec.runtime.type", "isulad"},
	{"spec.network.plugin", "kube-router"},
	{"spec.network.kubeRouter", ""},
	{"spec.storage.default", "openebs nfs rook longhorn"},
	{"spec.storage.openebs", ""},
	{"spec.storage.nfs", ""},
	{"spec.storage.rook", ""},
	{"spec.storage.longhorn", ""},
}

const notYet = "not supported yet"

// refused reports whether nothing acts on a value of a field; the empty value stands for all of them.
func refused(path, value string) bool {
	for _, u := range unsupported {
		if u.path == path && (u.values == "" || slices.Contains(strings.Fields(u.values), value)) {
			return true
		}
	}
	return false
}

// supported lists those of the values of a field that can be given.
func supported(path string, values []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return refused(path, v) })
}

// supportedFields lists those fields of an object that can be given.
func supportedFields(path string, fields []field) []string {
	return slices.DeleteFunc(names(fields), func(name string) bool { return refused(join(path, name), "") })
}

// refuseUnsupported reports a value that nothing acts on. It is decoded all the
// same: the other rules hold for it, too.
func (d *decoder) refuseUnsupported(n *yaml.Node, path string, f field) {
	if !refused(path, n.Value) {
		return
	}
	e := Error{Line: n.Line, Path: path, Msg: notYet}
	if !refused(path, "") { // others are supported
		e.Value, e.Allowed = n.Value, supported(path, f.enum)
	}
	d.errs = append(d.errs, e)
}
