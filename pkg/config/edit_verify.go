package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// verify compares what the text means with what it meant and was to mean. It changes both. alias is the line of
// the first alias, 0: there is none.
func (e Edit) verify(was, is *v1alpha1.Cluster, alias int) error {
	want := e.wanted(&was.Spec)
	resolveRoles(&is.Spec)
	for i := range is.Spec.Hosts {
		tidy(&is.Spec.Hosts[i])
	}
	before := strangers(&was.Spec, slices.Concat(was.Spec.Hosts, is.Spec.Hosts))
	for field, value := range e.Set {
		setField(was, strings.Split(field, "."), value)
	}
	same := reflect.DeepEqual(want, is.Spec.Hosts) && reflect.DeepEqual(before, strangers(&is.Spec, is.Spec.Hosts))
	was.Spec.Hosts, is.Spec.Hosts = nil, nil
	was.Spec.RoleGroups, is.Spec.RoleGroups = v1alpha1.RoleGroups{}, v1alpha1.RoleGroups{}
	switch {
	case same && reflect.DeepEqual(was, is):
		return nil
	case alias > 0:
		return fmt.Errorf("line %d: more would change than was asked for: this and perhaps other parts of the file are used in several places, by anchors and aliases", alias)
	}
	return errors.New("something else would come of it than was asked for")
}

// wanted are the hosts that there are to be, with all their roles.
func (e Edit) wanted(was *v1alpha1.Spec) []v1alpha1.Host {
	implied := stacked(was)
	resolveRoles(was)
	var all []v1alpha1.Host
	for i, h := range slices.Concat(was.Hosts, e.Add) {
		if slices.Contains(e.Remove, h.Name) {
			continue
		}
		if i >= len(was.Hosts) {
			h.Roles = ordered(h.Roles, implied)
		} else if roles, changed := e.Roles[h.Name]; changed {
			h.Roles = ordered(roles, implied)
		}
		to := e.Move[h.Name]
		h.Address, h.InternalAddress = cmp.Or(to.Address, h.Address), cmp.Or(to.Internal, h.InternalAddress)
		tidy(&h)
		all = append(all, h)
	}
	return all
}

// tidy leaves no empty lists and maps, which are none.
func tidy(h *v1alpha1.Host) {
	v := reflect.ValueOf(h).Elem()
	for _, f := range fieldsOf(v.Type()) {
		if fv := v.FieldByIndex(f.index); none(fv) {
			fv.SetZero()
		}
	}
}

// ordered are roles as hosts hold them.
func ordered(all []v1alpha1.Role, stacked bool) []v1alpha1.Role {
	var out []v1alpha1.Role
	for _, r := range v1alpha1.Roles() {
		if slices.Contains(all, r) || stacked && r == v1alpha1.RoleEtcd && slices.Contains(out, v1alpha1.RoleMaster) {
			out = append(out, r)
		}
	}
	return out
}

// strangers are the members of role groups, by role, that are none of some hosts.
func strangers(s *v1alpha1.Spec, hosts []v1alpha1.Host) map[string]bool {
	known, all := map[string]bool{}, map[string]bool{}
	for _, h := range hosts {
		known[h.Name] = true
	}
	for _, g := range groupsOf(s.RoleGroups) {
		for _, entry := range g.hosts {
			names, err := expand(entry)
			if err != nil {
				names = []string{entry}
			}
			for _, name := range names {
				if !known[name] {
					all[string(g.role)+" "+name] = true
				}
			}
		}
	}
	return all
}

// byHand says what to do where the text cannot be edited. Only what is no secret is in it.
func (e Edit) byHand() string {
	var do []string
	for _, h := range e.Add {
		some := v1alpha1.Host{Name: h.Name, Address: h.Address, InternalAddress: h.InternalAddress, Roles: h.Roles}
		some.Port, some.User = h.Port, h.User
		text := writer{}.text(writer{}.node(reflect.ValueOf(some), yaml.FlowStyle))
		if tidy(&h); !reflect.DeepEqual(h, some) {
			text += " with its other fields"
		}
		do = append(do, "add "+text+" to spec.hosts")
	}
	for _, name := range slices.Sorted(maps.Keys(e.Move)) {
		to := e.Move[name]
		if to.Address != "" {
			do = append(do, fmt.Sprintf("write address: %s at host %s", to.Address, name))
		}
		if to.Internal != "" {
			do = append(do, fmt.Sprintf("write internalAddress: %s at host %s", to.Internal, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Roles)) {
		list := "no roles"
		for i, r := range e.Roles[name] {
			list = map[bool]string{true: "the roles ", false: list + ", "}[i == 0] + string(r)
		}
		do = append(do, fmt.Sprintf("give host %s %s, in its roles and in spec.roleGroups", name, list))
	}
	for _, field := range slices.Sorted(maps.Keys(e.Set)) {
		do = append(do, "write "+field+": "+e.Set[field])
	}
	if len(e.Remove) > 0 {
		do = append(do, "take "+strings.Join(e.Remove, ", ")+" out of spec.hosts and spec.roleGroups")
	}
	return "edit the file by hand: " + strings.Join(do, "; ")
}
