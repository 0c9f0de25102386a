package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// hostList is the list of the hosts; nil: it cannot be edited.
func (d *document) hostList() *yaml.Node {
	spec, _ := d.own(d.root, "spec")
	list, _ := d.own(spec, "hosts")
	if list == nil {
		d.lose("spec.hosts comes out of a merge key (<<)")
		return nil
	}
	if list.Kind != yaml.SequenceNode || len(list.Content) != len(d.Spec.Hosts) {
		d.lose(unclear)
		return nil
	}
	return list
}

// host is the mapping of a host, and which of them that is; nil: it cannot be edited.
func (d *document) host(name string) (n *yaml.Node, i int) {
	i = slices.IndexFunc(d.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == name })
	list := d.hostList()
	if list == nil || i < 0 {
		d.lose(unclear)
		return nil, 0
	}
	n = list.Content[i]
	if d.alias(n); n.Kind != yaml.MappingNode {
		return nil, 0
	}
	return n, i
}

// removeHost takes a host out of the list.
func (d *document) removeHost(name string) []cut {
	n, i := d.host(name)
	if n == nil {
		return nil
	}
	return d.remove(part{d.hostList(), i})
}

// set gives a host a value for a field, which is written behind that of others if it is not there.
func (d *document) set(name, field, value string, behind ...string) []cut {
	n, i := d.host(name)
	if n == nil {
		return nil
	}
	was := d.Spec.Hosts[i].Address
	if field == "internalAddress" {
		was = d.Spec.Hosts[i].InternalAddress
	}
	if was == value {
		return nil
	}
	flow := n.Style&yaml.FlowStyle != 0
	if v, at := d.own(n, field); v != nil {
		return d.put(n, at, word(value, v.Style, flow))
	}
	w := d.writerFor(n)
	if was != "" {
		d.lose("its " + field + " comes out of a merge key (<<)")
	}
	return d.add(n, word(field, w.keys, flow)+": "+word(value, w.values, flow), behind...)
}

// add puts an entry into a mapping, behind the first of some that is there, or the last.
func (d *document) add(m *yaml.Node, text string, behind ...string) []cut {
	for _, key := range behind {
		if v, i := lookup(m, key); v != nil {
			return d.insert(m, i, text)
		}
	}
	return d.insert(m, max(len(m.Content)/2-1, 0), text)
}

// rolesOf are the roles that are written for a host: its own, and those of the groups that it is in.
func rolesOf(s *v1alpha1.Spec, name string) (own, grouped []v1alpha1.Role) {
	for _, h := range s.Hosts {
		if h.Name == name {
			own = append(own, h.Roles...)
		}
	}
	for _, g := range groupsOf(s.RoleGroups) {
		if slices.ContainsFunc(g.hosts, func(entry string) bool { return entryHas(entry, name) }) {
			grouped = append(grouped, g.role)
		}
	}
	return own, grouped
}

func entryHas(entry, name string) bool {
	hosts, _ := expand(entry)
	return slices.Contains(hosts, name)
}

// groups reports whether the roles of a host are to be written as role groups, not with the host itself.
func groups(s *v1alpha1.Spec, name string) bool {
	own, grouped := rolesOf(s, name)
	some := slices.ContainsFunc(s.Hosts, func(h v1alpha1.Host) bool { return len(h.Roles) > 0 })
	used := slices.ContainsFunc(groupsOf(s.RoleGroups), func(g roleGroup) bool { return len(g.hosts) > 0 })
	return len(own) == 0 && used && (len(grouped) > 0 || !some)
}

// give writes roles with a host itself.
func (d *document) give(name string, all []v1alpha1.Role) []cut {
	n, i := d.host(name)
	if n == nil {
		return nil
	}
	w, texts := d.writerFor(n), make([]string, len(all))
	for i, r := range all {
		texts[i] = string(r)
	}
	flow := n.Style & yaml.FlowStyle
	list, at := d.own(n, "roles")
	switch {
	case list == nil && len(d.Spec.Hosts[i].Roles) > 0:
		d.lose("its roles come out of a merge key (<<)")
		return nil
	case list == nil:
		return d.add(n, w.pair("roles", texts, w.styles["roles"]|flow), "internalAddress", "address", "name")
	}
	return d.extend(n, at, texts, w.values)
}

// extend puts texts into the list that is the value of a key of a mapping.
func (d *document) extend(m *yaml.Node, i int, texts []string, style yaml.Style) []cut {
	list := m.Content[2*i+1]
	if list.Kind != yaml.SequenceNode { // it is null
		var words []string
		for _, text := range texts {
			words = append(words, word(text, style, true))
		}
		return d.put(m, i, "["+strings.Join(words, ", ")+"]")
	}
	last := max(len(list.Content)-1, 0)
	if len(list.Content) > 0 && list.Content[last].Kind == yaml.ScalarNode && !hostRange.MatchString(list.Content[last].Value) {
		style = list.Content[last].Style
	}
	return d.insert(list, last, entryText(list, texts[0], style)) // one at a time
}

func entryText(list *yaml.Node, text string, style yaml.Style) string {
	if list.Style&yaml.FlowStyle != 0 {
		return word(text, style, true)
	}
	return "- " + word(text, style, false)
}

// group is the list of a role group with what it is in; the last part is nil where there is no such list.
func (d *document) group(role v1alpha1.Role) (chain []part, list *yaml.Node) {
	spec, _ := d.own(d.root, "spec")
	all, i := d.own(spec, "roleGroups")
	list, j := d.own(all, string(role))
	if all == nil || all.Kind != yaml.MappingNode {
		d.lose("spec.roleGroups comes out of a merge key (<<)")
		return nil, nil
	}
	return []part{{spec, i}, {all, j}}, list
}

// join puts a host into the group of a role.
func (d *document) join(name string, role v1alpha1.Role) []cut {
	chain, list := d.group(role)
	if len(chain) == 0 {
		return nil
	}
	all := chain[1].of
	if list == nil {
		w := writer{indent: 2, compact: flush(all)}
		style := all.Style & yaml.FlowStyle
		if n := len(all.Content); n > 1 {
			w.keys, style = all.Content[n-2].Style, style|all.Content[n-1].Style&yaml.FlowStyle
			w.values = w.keys
		}
		return d.add(all, w.pair(string(role), []string{name}, style))
	}
	if n := len(list.Content); n > 0 && list.Content[n-1].Kind == yaml.ScalarNode {
		if entry := list.Content[n-1]; longer(entry.Value, name) != "" {
			return []cut{{d.content(entry), d.end(entry), word(longer(entry.Value, name), entry.Style, list.Style&yaml.FlowStyle != 0)}}
		}
	}
	return d.extend(all, chain[1].i, []string{name}, all.Content[2*chain[1].i].Style)
}

// leave takes a host out of the group of a role, or out of a range in it.
func (d *document) leave(name string, role v1alpha1.Role) []cut {
	chain, list := d.group(role)
	if len(chain) == 0 || list == nil {
		d.lose("the group of " + string(role) + " comes out of a merge key (<<)")
		return nil
	}
	i := slices.IndexFunc(list.Content, func(n *yaml.Node) bool {
		return entryHas(n.Value, name) || n.Kind == yaml.AliasNode && entryHas(n.Alias.Value, name)
	})
	if i < 0 {
		d.lose(unclear)
		return nil
	}
	entry := list.Content[i]
	d.alias(entry)
	rest := without(entry.Value, name)
	if len(rest) == 0 {
		return d.remove(append(chain, part{list, i})...)
	}
	cuts := []cut{{d.content(entry), d.end(entry), word(rest[0], entry.Style, list.Style&yaml.FlowStyle != 0)}}
	if len(rest) > 1 {
		cuts = append(cuts, d.insert(list, i, entryText(list, rest[1], entry.Style))...)
	}
	return cuts
}

// drop takes a role away that is written with a host itself.
func (d *document) drop(name string, role v1alpha1.Role) []cut {
	n, _ := d.host(name)
	if n == nil {
		return nil
	}
	list, at := d.own(n, "roles")
	if list == nil {
		d.lose("its roles come out of a merge key (<<)")
		return nil
	}
	i := slices.IndexFunc(list.Content, func(n *yaml.Node) bool {
		return n.Value == string(role) || n.Kind == yaml.AliasNode && n.Alias.Value == string(role)
	})
	if i < 0 {
		d.lose(unclear)
		return nil
	}
	d.alias(list.Content[i])
	return d.remove(part{n, at}, part{list, i})
}

// without is what is left of an entry of a role group, a name or a range, without a host: at most two entries.
func without(entry, name string) []string {
	all, _ := expand(entry)
	i := slices.Index(all, name)
	if i < 0 {
		return []string{entry}
	}
	var rest []string
	for _, part := range [][]string{all[:i], all[i+1:]} {
		if len(part) == 1 {
			rest = append(rest, part[0])
		} else if len(part) > 1 {
			rest = append(rest, rangeOf(entry, part[0], part[len(part)-1]))
		}
	}
	return rest
}

// rangeOf is a range between two hosts, written like another.
func rangeOf(like, from, to string) string {
	m := hostRange.FindStringSubmatch(like)
	number := func(name string) string { return strings.TrimSuffix(strings.TrimPrefix(name, m[1]), m[4]) }
	return m[1] + "[" + number(from) + ":" + number(to) + "]" + m[4]
}

// longer is a range with the host that follows in it; empty: another host follows.
func longer(entry, name string) string {
	all, _ := expand(entry)
	if !hostRange.MatchString(entry) || len(all) == 0 {
		return ""
	}
	more := rangeOf(entry, all[0], name)
	if got, _ := expand(more); slices.Equal(got, append(all, name)) {
		return more
	}
	return ""
}
