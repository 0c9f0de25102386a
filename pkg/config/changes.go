package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// Change is a field that differs between two configurations.
type Change struct {
	Field   string // like spec.hosts[node1].labels[zone]; spec.hosts[node1] is a host that is new or gone
	Host    string // the name of the host that the field is of; empty: it is of none
	Was, Is string // secrets are masked; empty: not given
	Content bool   // the value is the same; the secret, or what is in the file that it names, is another
	Policy  Policy
}

// longest value that is shown of a change, in characters.
const longest = 120

// String returns one line: the field and what became of it.
func (c Change) String() string {
	if c.Content {
		return "content of " + c.Field + " changed"
	}
	short := func(value string) string {
		if r := []rune(value); len(r) > longest {
			value = string(r[:longest]) + "..."
		}
		return cmp.Or(strings.ReplaceAll(value, "\n", `\n`), "(none)")
	}
	return fmt.Sprintf("%s: %s -> %s", c.Field, short(c.Was), short(c.Is))
}

// Gone reports whether the change is a host that is no longer there.
func (c Change) Gone() bool { return c.Host != "" && c.Field == hostField(c.Host) && c.Is == "" }

func hostField(name string) string { return "spec.hosts[" + name + "]" }

// resolved is what Resolved writes, as far as it is compared.
type resolved struct {
	Spec     map[string]any
	Contents map[string]string
}

// Changes lists the fields in which two configurations differ, both as Resolved writes them, in the order of the
// documentation. Objects in lists are compared by their names where they have names, other lists as a whole. A field
// that one of them does not know has its default there.
func Changes(was, is []byte) ([]Change, error) {
	var before, now resolved
	for text, into := range map[*[]byte]*resolved{&was: &before, &is: &now} {
		if err := yaml.Unmarshal(*text, into); err != nil {
			return nil, fmt.Errorf("reading the configurations to compare: %w", err)
		}
	}
	d := &differ{before: before.Contents, now: now.Contents}
	d.fields(reflect.TypeFor[v1alpha1.Spec](), "spec", before.Spec, now.Spec, Policy{})
	for _, c := range d.all {
		if c.Field != "spec.runtime.type" {
			continue
		}
		for i := range d.all { // another runtime begins without images and containers
			if d.all[i].Field == "spec.runtime.dataRoot" {
				d.all[i].Policy.Way = c.Policy.Way
			}
		}
	}
	return d.all, nil
}

type differ struct {
	before, now map[string]string // digests of contents; nil: not known
	host        string            // that the fields are of
	all         []Change
}

func (d *differ) add(c Change) {
	c.Host = d.host
	d.all = append(d.all, c)
}

// fields compares two objects of the configuration.
func (d *differ) fields(t reflect.Type, path string, was, is map[string]any, outer Policy) {
	for _, f := range fieldsOf(t) {
		d.value(t.FieldByIndex(f.index).Type, join(path, f.name), given(was, f), given(is, f), f.policy.or(outer))
	}
}

// given is the value of a field of an object; nil: it has none.
func given(object map[string]any, f field) any {
	if v, ok := object[f.name]; ok || f.def == "" || object == nil {
		return v
	}
	return f.def
}

// value compares two values of a field, of which nil is none.
func (d *differ) value(t reflect.Type, path string, was, is any, p Policy) {
	before, ok1 := object(was)
	now, ok2 := object(is)
	if isObject(t) { // it is there without being written, unlike what a pointer leads to
		d.fields(t, path, orEmpty(before), orEmpty(now), p)
		return
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch free := t.Kind() == reflect.Interface; {
	case was == nil && is == nil:
	case isObject(t):
		d.fields(t, path, before, now, p)
	case t == reflect.TypeFor[[]v1alpha1.Host]():
		d.hosts(byName(was), byName(is), p)
	case t.Kind() == reflect.Slice && hasName(t.Elem()):
		d.keys(t.Elem(), path, byName(was), byName(is), p)
	case t.Kind() == reflect.Map:
		d.keys(t.Elem(), path, before, now, p)
	case free && ok1 && ok2:
		d.keys(t, path, before, now, p)
	default:
		d.leaf(path, text(was), text(is), p)
	}
}

// keys compares two maps of values of a type.
func (d *differ) keys(t reflect.Type, path string, was, is map[string]any, p Policy) {
	for _, key := range bothKeys(was, is) {
		d.value(t, path+"["+key+"]", was[key], is[key], p)
	}
}

// hosts compares the hosts by their names.
func (d *differ) hosts(was, is map[string]any, gone Policy) {
	t := reflect.TypeFor[v1alpha1.Host]()
	for _, d.host = range bothKeys(was, is) {
		before, there := object(was[d.host])
		now, stays := object(is[d.host])
		switch path := hostField(d.host); {
		case was[d.host] == nil:
			d.add(Change{Field: path, Is: text(now["roles"]), Policy: joining(now["roles"])})
		case is[d.host] == nil:
			d.add(Change{Field: path, Was: text(before["roles"]), Policy: gone})
		case there && stays:
			first := len(d.all)
			d.fields(t, path, before, now, Policy{})
			for i := range d.all[first:] {
				switch c := &d.all[first+i]; c.Field {
				case path + ".roles":
					c.Policy = roles(before["roles"], now["roles"])
				case path + ".internalAddress":
					c.Policy = moving(d.host, was, is)
				}
			}
		}
	}
	d.host = ""
}

// moving is the policy on another address of a host: masters and members of etcd begin anew, if there are others that stay meanwhile, or that join.
func moving(host string, was, is map[string]any) Policy {
	has := func(hosts map[string]any, name string, role v1alpha1.Role) bool {
		h, _ := object(hosts[name])
		all, _ := h["roles"].([]any)
		return slices.Contains(all, any(string(role)))
	}
	for _, other := range bothKeys(was, is) {
		for _, role := range []v1alpha1.Role{v1alpha1.RoleMaster, v1alpha1.RoleEtcd} {
			if other != host && has(was, host, role) && (has(was, other, role) || has(is, other, role)) {
				return Policy{Way: Rejoin}
			}
		}
	}
	if has(was, host, v1alpha1.RoleEtcd) && !has(was, host, v1alpha1.RoleMaster) { // the API servers would not find it
		return Policy{Way: Rejoin}
	}
	return Policy{Way: Restart}
}

// joining is the policy on a new host: masters and members of etcd come one by one.
func joining(is any) Policy {
	return roles(nil, is, v1alpha1.RoleWorker, v1alpha1.RoleLoadBalancer)
}

// roles is the policy on a change of a host's roles: the registry may come and go without a procedure, and so may those of others. A host
// that becomes a master, is one no more, or is no node any more, begins anew.
func roles(was, is any, others ...v1alpha1.Role) Policy {
	before, _ := was.([]any)
	now, _ := is.([]any)
	has := func(list []any, role v1alpha1.Role) bool { return slices.Contains(list, any(string(role))) }
	p := Policy{Way: Converge}
	for _, r := range slices.Concat(before, now) {
		role := v1alpha1.Role(text(r))
		switch changed := has(before, role) != has(now, role); {
		case !changed || role == v1alpha1.RoleRegistry || slices.Contains(others, role):
		case len(before) > 0 && (role == v1alpha1.RoleMaster || role == v1alpha1.RoleWorker && has(before, role) && !has(now, v1alpha1.RoleMaster)):
			return Policy{Way: Rejoin}
		default:
			p.Way = Procedure
		}
	}
	return p
}

func (d *differ) leaf(path, was, is string, p Policy) {
	if (was == "" || is == "") && p.Way == Refuse { // it is made or taken away with what it is for, not changed
		p = Policy{Way: Converge, Erased: p.Erased}
	}
	if other, ok := byValue(path, was, is); ok {
		p = other
	}
	switch {
	case was != is:
		d.add(Change{Field: path, Was: was, Is: is, Policy: p})
	case d.before != nil && d.now != nil && d.before[path] != d.now[path]:
		d.add(Change{Field: path, Was: was, Is: is, Content: true, Policy: p})
	}
}

// object reports whether a value is an object, or none.
func object(v any) (map[string]any, bool) {
	o, ok := v.(map[string]any)
	return o, ok || v == nil
}

func orEmpty(o map[string]any) map[string]any {
	if o == nil {
		return map[string]any{}
	}
	return o
}

func hasName(t reflect.Type) bool { return isObject(t) && slices.Contains(names(fieldsOf(t)), "name") }

// byName lists objects by their names.
func byName(list any) map[string]any {
	all := map[string]any{}
	items, _ := list.([]any)
	for _, item := range items {
		o, _ := object(item)
		all[text(o["name"])] = item
	}
	return all
}

func bothKeys(a, b map[string]any) []string {
	both := maps.Clone(orEmpty(a))
	maps.Copy(both, b)
	return slices.Sorted(maps.Keys(both))
}

// text is a value in one line; empty: there is none.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []any, map[string]any:
		list, _ := json.Marshal(v) // it came from YAML
		return string(list)
	default:
		return fmt.Sprint(v)
	}
}
