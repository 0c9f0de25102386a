package config

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// writer makes text of values, in the style of what stands beside them.
type writer struct {
	keys, values yaml.Style            // quotes
	styles       map[string]yaml.Style // of the values of keys, where they are lists and mappings
	indent       int
	compact      bool // lists are not indented
}

// node is a value as it is written; what is empty in it is left out.
func (w writer) node(v reflect.Value, style yaml.Style) *yaml.Node {
	text := func(s string) *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: w.values}
	}
	switch t := v.Type(); {
	case v.Kind() == reflect.Pointer:
		return w.node(v.Elem(), style)
	case isObject(t):
		n := &yaml.Node{Kind: yaml.MappingNode, Style: style}
		for _, f := range fieldsOf(t) {
			if fv := v.FieldByIndex(f.index); !none(fv) {
				n.Content = append(n.Content, w.key(f.name), w.node(fv, w.styles[f.name]))
			}
		}
		return n
	case v.Kind() == reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode, Style: style}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			n.Content = append(n.Content, w.key(k.String()), w.node(v.MapIndex(k), 0))
		}
		return n
	case v.Kind() == reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode, Style: style}
		for i := range v.Len() {
			n.Content = append(n.Content, w.node(v.Index(i), 0))
		}
		return n
	case t == reflect.TypeFor[secret.Secret]():
		return text(v.Interface().(secret.Secret).Reveal()) //nolint:forcetypeassert // as the case says
	case t == durationType:
		return text(v.Interface().(metav1.Duration).Duration.String()) //nolint:forcetypeassert // as the case says
	case v.Kind() == reflect.String:
		return text(v.String())
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(v.Interface())}
}

func (w writer) key(name string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name, Style: w.keys}
}

// pair is the text of a key with a list of texts.
func (w writer) pair(key string, list []string, style yaml.Style) string {
	return w.text(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{w.key(key), w.node(reflect.ValueOf(list), style)}})
}

// text is how a node is written, without a line break at its end.
func (w writer) text(n *yaml.Node) string {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(max(w.indent, 2))
	if w.compact {
		enc.CompactSeqIndent()
	}
	if enc.Encode(n) != nil { // what is written is read again: it fails there
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// word is how a text is written; in brackets more of them need quotes.
func word(value string, style yaml.Style, brackets bool) string {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Style: style & (yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle)}
	if !brackets {
		return writer{}.text(n)
	}
	text := writer{}.text(&yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: []*yaml.Node{n}})
	return strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
}

// none reports whether a value is not given.
func none(v reflect.Value) bool {
	return v.IsZero() || (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0
}

// writerFor writes a host like another that stands in the file.
func (d *document) writerFor(host *yaml.Node) writer {
	w := writer{styles: map[string]yaml.Style{"roles": yaml.FlowStyle}}
	if name, i := lookup(host, "name"); name != nil {
		w.keys = host.Content[2*i].Style & (yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle)
		w.values = name.Style & (yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle)
	}
	list := d.hostList()
	if list == nil {
		return w
	}
	for _, h := range list.Content {
		if h.Kind != yaml.MappingNode || h.Style&yaml.FlowStyle != host.Style&yaml.FlowStyle {
			continue
		}
		w.compact = w.compact || flush(h)
		for i := 0; i+1 < len(h.Content); i += 2 {
			if v := h.Content[i+1]; v.Kind == yaml.SequenceNode || v.Kind == yaml.MappingNode {
				w.styles[h.Content[i].Value] = v.Style & yaml.FlowStyle
			}
		}
	}
	return w
}

// flush reports whether a list in a mapping is not indented.
func flush(m *yaml.Node) bool {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if k, v := m.Content[i], m.Content[i+1]; v.Kind == yaml.SequenceNode && v.Style&yaml.FlowStyle == 0 && v.Column == k.Column {
			return true
		}
	}
	return false
}

// addHost writes a host behind the others.
func (d *document) addHost(h v1alpha1.Host) []cut {
	list := d.hostList()
	if list == nil || len(list.Content) == 0 {
		d.lose(unclear)
		return nil
	}
	last := len(list.Content) - 1
	like := list.Content[last]
	for i := last; like.Kind != yaml.MappingNode && i > 0; i-- {
		like = list.Content[i-1]
	}
	w := d.writerFor(like)
	if like.Style&yaml.FlowStyle != 0 || like.Kind != yaml.MappingNode || len(like.Content) == 0 {
		text := w.text(w.node(reflect.ValueOf(h), yaml.FlowStyle))
		if list.Style&yaml.FlowStyle == 0 {
			text = "- " + text
		}
		return d.insert(list, last, text)
	}
	gap := 2
	for i, s := range d.spans(list) {
		if n := list.Content[i]; n == like && d.begin(s.from) == d.begin(d.at(n.Content[0])) && n.Anchor == "" {
			gap = d.at(n.Content[0]) - s.from
		}
	}
	w.indent = gap
	text := indented(w.text(w.node(reflect.ValueOf(h), 0)), gap)
	return d.insert(list, last, "-"+text[1:])
}
