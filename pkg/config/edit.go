package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Edit is a change of the hosts of a configuration.
type Edit struct {
	Add    []v1alpha1.Host            // that are new; what is set in them is written
	Remove []string                   // that go
	Roles  map[string][]v1alpha1.Role // by host: all that it has from now on
	Gain   map[string]v1alpha1.Role   // by host: one that it has from now on, too
	Lose   map[string]v1alpha1.Role   // by host: one that it has no more
	Move   map[string]Addresses       // by host
	Set    map[string]string          // by field, which is a text and in no list, like spec.kubernetes.version
}

// Addresses are new ones of a host; empty: as before. A host without an internalAddress of its own is reached by
// the others at its address, which then changes for them, too.
type Addresses struct{ Address, Internal string }

// Apply returns the text of a configuration with the edit made; everything else in it stays as it is, byte for
// byte. Comments directly above a host go with it. Roles are written where those of the other hosts are. The text
// has to decode, but need not be valid, before and after.
//
// Errors are for hosts that are there already or are not there, and for texts that cannot be edited, with the line
// and, as advice, what to do by hand. They carry fault.ExitUsage.
func (e Edit) Apply(text []byte) ([]byte, error) {
	out, err := e.apply(text)
	if err != nil {
		return nil, fault.Exit(fmt.Errorf("editing the configuration: %w", err), fault.ExitUsage)
	}
	return out, nil
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// otherBreaks end lines for the YAML library, but not for others.
var otherBreaks = regexp.MustCompile("\r[^\n]|\r$|[\u0085\u2028\u2029]")

func (e Edit) apply(text []byte) ([]byte, error) {
	body, marked := bytes.CutPrefix(text, byteOrderMark)
	if at := otherBreaks.FindIndex(body); at != nil {
		return nil, fault.Advise(fmt.Errorf("line %d has a line break that is none of \\n and \\r\\n", 1+bytes.Count(body[:at[0]], []byte("\n"))), e.byHand())
	}
	before, d := decode(body)
	if len(d.errs) > 0 {
		return nil, fault.Advise(placed(d.errs), "correct the file first")
	}
	if err := e.check(&before.Spec); err != nil {
		return nil, err
	}
	e = e.settled(&before.Spec)
	c, again := decode(body)
	t := &editing{document: newDocument(body, c, again.root), lines: d.lines, stacked: stacked(&before.Spec)}
	for _, h := range before.Spec.Hosts {
		t.hosts = append(t.hosts, h.Name)
	}
	err := t.edit(e)
	if err == nil {
		err = e.verify(before, t.Cluster, firstAlias(d.root))
	}
	if err != nil {
		return nil, fault.Advise(err, e.byHand())
	}
	if marked {
		return slices.Concat(byteOrderMark, t.text), nil
	}
	return t.text, nil
}

// placed is mistakes with their lines. The values stay out of it.
func placed(all Errors) error {
	var errs []error
	for _, e := range all[:min(len(all), Most)] {
		e.Value = ""
		errs = append(errs, fmt.Errorf("line %d: %w", e.Line, e))
	}
	return errors.Join(errs...)
}

// check says what of the edit cannot be meant.
func (e Edit) check(s *v1alpha1.Spec) error {
	var known, adds []string
	for _, h := range s.Hosts {
		known = append(known, h.Name)
	}
	var errs Errors
	fail := func(name, msg, meant string) {
		errs = append(errs, Error{Path: "spec.hosts", Value: name, Msg: msg, Suggestion: meant})
	}
	roles := func(all []v1alpha1.Role) {
		for _, r := range all {
			if allowed := v1alpha1.Roles(); !slices.Contains(allowed, r) {
				words := make([]string, len(allowed))
				for i, a := range allowed {
					words[i] = string(a)
				}
				fail(string(r), "no such role", Nearest(string(r), words))
			}
		}
	}
	for _, h := range e.Add {
		switch roles(h.Roles); {
		case h.Name == "" || h.Address == "":
			fail(h.Name, "a host needs a name and an address", "")
		case slices.Contains(known, h.Name):
			fail(h.Name, "is there already", "")
		case slices.Contains(adds, h.Name):
			fail(h.Name, "is to be added twice", "")
		}
		adds = append(adds, h.Name)
	}
	errs = append(errs, e.unknown()...)
	there := func(name string) {
		if !slices.Contains(known, name) {
			fail(name, "no such host", Nearest(name, known))
		}
	}
	for i, name := range e.Remove {
		there(name)
		_, roles := e.Roles[name]
		if _, moves := e.Move[name]; roles || moves || slices.Contains(e.Remove[:i], name) {
			fail(name, "is to be removed, and something else, too", "")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Roles)) {
		there(name)
		roles(e.Roles[name])
	}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(e.Move)), slices.Sorted(maps.Keys(e.Gain)), slices.Sorted(maps.Keys(e.Lose))) {
		there(name)
	}
	errs = append(errs, e.implied(s)...)
	if len(errs) == 0 && len(known)+len(adds) == len(e.Remove) {
		fail("", "a cluster has at least one host", "")
	}
	if len(errs) > 0 {
		return errs
	}
	return nil
}

// implied are the hosts that cannot lose a role, as masters have it without its being written.
func (e Edit) implied(s *v1alpha1.Spec) (errs Errors) {
	for _, name := range slices.Sorted(maps.Keys(e.Lose)) {
		own, grouped := rolesOf(s, name)
		if e.Lose[name] == v1alpha1.RoleEtcd && stacked(s) && slices.Contains(append(own, grouped...), v1alpha1.RoleMaster) {
			errs = append(errs, Error{Path: "spec.hosts", Value: name, Msg: "all masters have members of etcd: take the role master away, or the host"})
		}
	}
	return errs
}

// settled has all roles of hosts that gain or lose one.
func (e Edit) settled(s *v1alpha1.Spec) Edit {
	roles := maps.Clone(e.Roles)
	change := func(name string, to func([]v1alpha1.Role) []v1alpha1.Role) {
		own, grouped := rolesOf(s, name)
		if roles == nil {
			roles = map[string][]v1alpha1.Role{}
		}
		roles[name] = to(slices.Concat(own, grouped))
	}
	for name, r := range e.Gain {
		change(name, func(has []v1alpha1.Role) []v1alpha1.Role {
			if slices.Contains(has, r) {
				return has
			}
			return append(has, r)
		})
	}
	for name, r := range e.Lose {
		change(name, func(has []v1alpha1.Role) []v1alpha1.Role {
			return slices.DeleteFunc(has, func(h v1alpha1.Role) bool { return h == r })
		})
	}
	e.Roles, e.Gain, e.Lose = roles, nil, nil
	return e
}

// unknown are the fields to be set that there are not.
func (e Edit) unknown() (errs Errors) {
	for _, field := range slices.Sorted(maps.Keys(e.Set)) {
		if !setField(&v1alpha1.Cluster{}, strings.Split(field, "."), "") {
			errs = append(errs, Error{Path: field, Msg: "no such field"})
		}
	}
	return errs
}

// editing makes an edit in steps, each of which is a change of one place.
type editing struct {
	*document                // as it is by now
	lines     map[string]int // of the text as it was
	hosts     []string       // in the text as it was
	stacked   bool           // masters have the role etcd without its being written
}

// most is how many steps are taken for the roles of one host.
const most = 1000

func (t *editing) edit(e Edit) error {
	for _, h := range e.Add {
		want, grouped := t.written(h.Roles), groups(&t.Spec, h.Name)
		if h.Roles = want; grouped {
			h.Roles = nil
		}
		if err := t.do("spec.hosts", func() []cut { return t.addHost(h) }); err != nil {
			return err
		}
		if err := t.roles(h.Name, want, grouped); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Move)) {
		to := e.Move[name]
		for _, f := range []struct{ field, value string }{{"address", to.Address}, {"internalAddress", to.Internal}} {
			if f.value == "" {
				continue
			}
			if err := t.do(t.path(name), func() []cut { return t.set(name, f.field, f.value, "address", "name") }); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Roles)) {
		if err := t.roles(name, t.written(e.Roles[name]), groups(&t.Spec, name)); err != nil {
			return err
		}
	}
	for _, field := range slices.Sorted(maps.Keys(e.Set)) {
		if err := t.do(field, func() []cut { return t.write(strings.Split(field, "."), e.Set[field]) }); err != nil {
			return err
		}
	}
	for _, name := range e.Remove {
		for range most {
			_, grouped := rolesOf(&t.Spec, name)
			if len(grouped) == 0 {
				break
			}
			if err := t.do(groupPath(grouped[0]), func() []cut { return t.leave(name, grouped[0]) }); err != nil {
				return err
			}
		}
		if err := t.do(t.path(name), func() []cut { return t.removeHost(name) }); err != nil {
			return err
		}
	}
	return nil
}

func groupPath(r v1alpha1.Role) string { return "spec.roleGroups." + string(r) }

func (t *editing) path(name string) string {
	if i := slices.Index(t.hosts, name); i >= 0 {
		return hostPath(i)
	}
	return "spec.hosts"
}

// written are those of some roles that have to be written.
func (t *editing) written(all []v1alpha1.Role) []v1alpha1.Role {
	implied := t.stacked && slices.Contains(all, v1alpha1.RoleMaster)
	return slices.DeleteFunc(slices.Clone(all), func(r v1alpha1.Role) bool { return implied && r == v1alpha1.RoleEtcd })
}

// roles gives a host roles, in the groups or with the host itself, and takes others away.
func (t *editing) roles(name string, want []v1alpha1.Role, grouped bool) error {
	for range most {
		own, in := rolesOf(&t.Spec, name)
		missing := slices.DeleteFunc(slices.Clone(want), func(r v1alpha1.Role) bool { return slices.Contains(own, r) || slices.Contains(in, r) })
		other := func(r v1alpha1.Role) bool { return !slices.Contains(want, r) }
		path, step := t.path(name), func() []cut { return t.give(name, missing) }
		if i := slices.IndexFunc(own, other); len(missing) == 0 && i >= 0 {
			step = func() []cut { return t.drop(name, own[i]) }
		} else if i := slices.IndexFunc(in, other); len(missing) == 0 && i >= 0 {
			path, step = groupPath(in[i]), func() []cut { return t.leave(name, in[i]) }
		} else if len(missing) == 0 {
			return nil
		} else if grouped {
			path, step = groupPath(missing[0]), func() []cut { return t.join(name, missing[0]) }
		}
		if err := t.do(path, step); err != nil {
			return err
		}
	}
	return fmt.Errorf("line %d: %s", t.line(t.path(name)), unclear)
}

// do takes a step, and reads the text that comes of it.
func (t *editing) do(path string, step func() []cut) error {
	cuts := step()
	text, why := t.with(cuts...), t.stuck
	if why == "" {
		c, d := decode(text)
		if len(d.errs) == 0 {
			t.document = newDocument(text, c, d.root)
			return nil
		}
		why = unclear
	}
	return fmt.Errorf("line %d: %s", t.line(path), why)
}

// line is that in which a field stood, or what it is part of.
func (t *editing) line(path string) int {
	for path != "" && t.lines[path] == 0 {
		path = parent(path)
	}
	return t.lines[path]
}
