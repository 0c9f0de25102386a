package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Way is how a change of a field is brought about on a cluster that runs.
type Way string

// The ways, from the easiest on.
const (
	None      Way = "none"      // only how kubexm itself works
	Converge  Way = "converge"  // in place: nothing of the user's is interrupted
	Restart   Way = "restart"   // what reads the field restarts, one machine at a time where it has a quorum or an endpoint
	Roll      Way = "roll"      // nodes are drained one by one
	Procedure Way = "procedure" // by a procedure of its own, like that of another load balancer
	Rejoin    Way = "rejoin"    // the host leaves the cluster, and joins it again
	Refuse    Way = "refuse"    // not at all
)

// meanings are the ways, for users.
var meanings = map[Way]string{
	None:      "changes nothing in the cluster, only how kubexm works",
	Converge:  "in place; nothing is interrupted",
	Restart:   "services that read it are restarted, one machine at a time",
	Roll:      "nodes are drained and changed one by one",
	Procedure: "by its own procedure, step by step",
	Rejoin:    "the host is drained, leaves the cluster, is cleaned, and joins again",
	Refuse:    "not possible",
}

// Policy is the decision on changes of a field: the tags change and delete of the configuration types.
type Policy struct {
	Way    Way
	Why    string // Refuse: the reason
	WayOut string // Refuse: what to do instead
	Erased bool   // deleting the cluster empties it: the field must be what the cluster was made with
}

// String says how a change is brought about, in a line for users.
func (p Policy) String() string {
	if p.Way == Refuse {
		return fmt.Sprintf("%s: %s; %s", meanings[Refuse], p.Why, p.WayOut)
	}
	return meanings[p.Way]
}

// policyOf reads the tags of a field, of which one that it does not have itself is that of the nearest
// struct that embeds it in t.
func policyOf(t reflect.Type, sf reflect.StructField) (p Policy) {
	for i := range sf.Index {
		if tag := t.FieldByIndex(sf.Index[:i+1]).Tag; tag.Get("change") != "" {
			p = parsePolicy(tag.Get("change"))
		}
	}
	p.Erased = sf.Tag.Get("delete") == string(Refuse)
	return p
}

func parsePolicy(tag string) Policy {
	way, reason, _ := strings.Cut(tag, ",")
	why, out, _ := strings.Cut(reason, "; ")
	return Policy{Way: Way(way), Why: why, WayOut: out}
}

// or is the policy of a field below one that has another.
func (p Policy) or(outer Policy) Policy {
	if p.Way == "" {
		outer.Erased = p.Erased
		return outer
	}
	return p
}

// common is the policy of a field and of all that is below it; false: they are several.
func common(t reflect.Type, p Policy) (Policy, bool) {
	t = element(t)
	if !isObject(t) {
		return p, true
	}
	var all Policy
	for i, f := range fieldsOf(t) {
		below, one := common(t.FieldByIndex(f.index).Type, f.policy.or(p))
		if !one || i > 0 && below != all {
			return Policy{}, false
		}
		all = below
	}
	return all, true
}

// element is what a type holds: itself, or what a pointer, list or map is of.
func element(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}
