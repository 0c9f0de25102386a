package config

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/util/secret"
)

// Limits against documents that grow without end through aliases.
const (
	maxNodes   = 200_000
	maxAliases = 8 // nested
)

// decoder sets Go values from YAML nodes and collects what does not fit. A part
// that does not fit is left out, so that the rest can still be validated.
type decoder struct {
	root    *yaml.Node
	lines   map[string]int  // line of each path that is written
	dropped map[string]bool // paths of what was left out
	errs    Errors
	nodes   int
	aliases int  // entered
	aliased bool // there are any
}

func (d *decoder) fail(n *yaml.Node, e Error) {
	e.Line = n.Line
	d.dropped[e.Path] = true
	d.errs = append(d.errs, e)
}

// resolve follows an alias; it returns nil for an absent value (null).
func (d *decoder) resolve(n *yaml.Node, path string) *yaml.Node {
	d.nodes++
	d.aliased = d.aliased || n.Kind == yaml.AliasNode
	if d.nodes == maxNodes || d.aliases == maxAliases {
		msg := fmt.Sprintf("too large: a configuration has at most %d values", maxNodes)
		if d.aliased {
			msg = "aliases make the document too large or endless"
		}
		d.fail(n, Error{Path: path, Msg: msg})
	}
	if d.nodes >= maxNodes || d.aliases >= maxAliases || n.ShortTag() == "!!null" {
		return nil
	}
	if n.Kind == yaml.AliasNode {
		return d.resolve(n.Alias, path)
	}
	return n
}

// value decodes n into v. f tells what is allowed; it may be empty.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string, f field) {
	if n.Kind == yaml.AliasNode {
		d.aliases++
		defer func() { d.aliases-- }()
	}
	d.lines[path] = n.Line
	if n = d.resolve(n, path); n == nil {
		return
	}
	d.refuseUnsupported(n, path, f)
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch {
	case isObject(v.Type()):
		d.object(n, v, path)
	case v.Kind() == reflect.Map:
		d.mapping(n, v, path)
	case v.Kind() == reflect.Slice:
		d.list(n, v, path, f)
	case v.Kind() == reflect.Interface:
		if free := d.free(n, path); free != nil {
			v.Set(reflect.ValueOf(free))
		}
	default:
		d.scalar(n, v, path, f)
	}
}

func (d *decoder) object(n *yaml.Node, v reflect.Value, path string) {
	fields := fieldsOf(v.Type())
	if n.Kind != yaml.MappingNode {
		d.fail(n, Error{Path: path, Msg: "must be a mapping, is " + kindOf(n), Allowed: supportedFields(path, fields)})
		return
	}
	pairs, given := d.pairs(n, path), map[string]bool{}
	for _, p := range pairs {
		given[p.key.Value] = p.value.ShortTag() != "!!null"
	}
	for _, p := range pairs {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == p.key.Value })
		if i < 0 {
			meant := Nearest(p.key.Value, names(fields))
			e := Error{Path: join(path, p.key.Value), Msg: "unknown field", Suggestion: cmp.Or(meant, elsewhere(p.key.Value))}
			if e.Suggestion == "" {
				e.Allowed = supportedFields(path, fields)
			}
			d.fail(p.key, e)
			// Go on as if it were spelled right: what else is wrong shows at once.
			if i = slices.Index(names(fields), meant); i < 0 || given[meant] {
				continue
			}
			given[meant] = true
		}
		at := join(path, fields[i].name)
		d.value(p.value, v.FieldByIndex(fields[i].index), at, fields[i])
		d.lines[at] = p.key.Line
	}
	for _, f := range fields {
		at, fv := join(path, f.name), v.FieldByIndex(f.index)
		empty := fv.IsZero() && !isObject(fv.Type()) && !d.dropped[at]
		if f.required && (!given[f.name] || empty) {
			d.fail(n, Error{Path: at, Msg: "required", Allowed: supported(at, f.enum)})
		}
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, Error{Path: path, Msg: "must be a mapping, is " + kindOf(n)})
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, p := range d.pairs(n, path) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(p.value, item, path+"["+p.key.Value+"]", field{})
		v.SetMapIndex(reflect.ValueOf(p.key.Value), item)
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string, f field) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, Error{Path: path, Msg: "must be a list, is " + kindOf(n)})
		return
	}
	for i, c := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		item := reflect.New(v.Type().Elem()).Elem()
		if c.ShortTag() == "!!null" {
			d.fail(c, Error{Path: at, Msg: "empty entry"})
		}
		d.value(c, item, at, field{enum: f.enum})
		v.Set(reflect.Append(v, item))
	}
}

// scalar decodes texts, numbers, switches, durations and secrets.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string, f field) {
	fail := func(value, msg string) { d.fail(n, Error{Path: path, Value: value, Msg: msg}) }
	if n.Kind != yaml.ScalarNode {
		fail("", "must be a single value, is "+kindOf(n))
		return
	}
	switch {
	case v.Type() == reflect.TypeFor[secret.Secret]():
		v.Set(reflect.ValueOf(secret.New(n.Value)))
	case v.Type() == durationType:
		t, err := time.ParseDuration(n.Value)
		if err != nil || t <= 0 {
			fail(n.Value, "must be a duration like 10s or 2m")
			return
		}
		v.Set(reflect.ValueOf(metav1.Duration{Duration: t}))
	case v.Kind() == reflect.Bool:
		var b bool
		if n.Decode(&b) != nil {
			fail(n.Value, "must be true or false")
			return
		}
		v.SetBool(b)
	case v.CanInt():
		i, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil || n.ShortTag() != "!!int" || v.OverflowInt(i) {
			fail(n.Value, "must be a whole number without quotes")
			return
		}
		switch {
		case f.max != 0 && (i < f.min || i > f.max):
			fail(n.Value, fmt.Sprintf("must be between %d and %d", f.min, f.max))
		case i < f.min:
			fail(n.Value, fmt.Sprintf("must be at least %d", f.min))
		default:
			v.SetInt(i)
		}
	default:
		if len(f.enum) > 0 && n.Value != "" && !slices.Contains(f.enum, n.Value) {
			allowed := supported(path, f.enum)
			meant := Nearest(n.Value, allowed)
			d.fail(n, Error{Path: path, Value: n.Value, Msg: "unknown value", Allowed: allowed, Suggestion: meant})
			v.SetString(meant) // to find what else is wrong
			return
		}
		v.SetString(n.Value)
	}
}

// free decodes a value of any shape into what encoding/json also would give,
// except that whole numbers are int64.
func (d *decoder) free(n *yaml.Node, path string) any {
	var out any
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		d.mapping(n, reflect.ValueOf(&m).Elem(), path)
		return m
	case yaml.SequenceNode:
		l := []any{}
		d.list(n, reflect.ValueOf(&l).Elem(), path, field{})
		return l
	}
	switch n.ShortTag() {
	case "!!int", "!!float", "!!bool":
		if n.Decode(&out) != nil {
			return n.Value
		}
	default:
		return n.Value
	}
	switch x := out.(type) {
	case int:
		return int64(x)
	case uint64:
		return float64(x)
	case float64:
		if math.IsInf(x, 0) || math.IsNaN(x) {
			d.fail(n, Error{Path: path, Value: n.Value, Msg: "must be a finite number"})
			return nil
		}
	}
	return out
}

type pair struct{ key, value *yaml.Node }

// pairs returns the entries of a mapping, with merge keys (<<) expanded.
func (d *decoder) pairs(n *yaml.Node, path string) []pair {
	var own, merged []pair
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.ShortTag() == "!!merge":
			merged = append(merged, d.merge(value, path)...)
		case key.Kind != yaml.ScalarNode:
			d.fail(key, Error{Path: path, Msg: "keys must be plain strings"})
		case first[key.Value] > 0:
			d.fail(key, Error{Path: join(path, key.Value), Msg: fmt.Sprintf("given twice; first in line %d", first[key.Value])})
		default:
			first[key.Value] = key.Line
			own = append(own, pair{key, value})
		}
	}
	for _, p := range merged {
		if first[p.key.Value] == 0 {
			first[p.key.Value] = p.key.Line
			own = append(own, p)
		}
	}
	return own
}

// merge returns the entries that a merge key brings in.
func (d *decoder) merge(n *yaml.Node, path string) []pair {
	d.aliases++
	defer func() { d.aliases-- }()
	switch n = d.resolve(n, path); {
	case n == nil:
		return nil
	case n.Kind == yaml.MappingNode:
		return d.pairs(n, path)
	case n.Kind == yaml.SequenceNode:
		var all []pair
		for _, c := range n.Content {
			all = append(all, d.merge(c, path)...)
		}
		return all
	}
	d.fail(n, Error{Path: path, Msg: "<< must name a mapping, is " + kindOf(n)})
	return nil
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// kindOf names what a node is, without its content: it may be a secret.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	}
	return "a text"
}
