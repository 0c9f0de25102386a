package config

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// write gives a field, which is a text, another value. The objects that it is in are written where they are not there.
func (d *document) write(path []string, value string) []cut {
	at := d.root
	for i, key := range path {
		next, n := d.own(at, key)
		flow := at.Style&yaml.FlowStyle != 0
		switch {
		case i == len(path)-1 && next != nil:
			return d.put(at, n, word(value, next.Style, flow))
		case next == nil:
			return d.add(at, nested(path[i:], value, flow))
		case empty(next) && flow:
			return d.put(at, n, "{"+nested(path[i+1:], value, true)+"}")
		case empty(next):
			key := at.Content[2*n]
			end := d.colon(key)
			text := "\n" + indented(nested(path[i+1:], value, false), d.at(key)-d.begin(d.at(key))+2)
			return []cut{{end, end, strings.ReplaceAll(text, "\n", d.breaks(end))}}
		case next.Kind != yaml.MappingNode:
			d.lose(unclear)
			return nil
		}
		at = next
	}
	return nil
}

// nested is the text of a value in objects within each other.
func nested(path []string, value string, flow bool) string {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
	for i := len(path) - 1; i >= 0; i-- {
		n = &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: path[i]}, n}}
		if flow {
			n.Style = yaml.FlowStyle
		}
	}
	text := writer{}.text(n)
	if flow {
		text = strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
	}
	return text
}

// setField is write for what a configuration means; false: it has no such field, or that is no text.
func setField(c *v1alpha1.Cluster, path []string, value string) bool {
	v := reflect.ValueOf(c).Elem()
	for _, key := range path {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		if !isObject(v.Type()) {
			return false
		}
		there := false
		for _, f := range fieldsOf(v.Type()) {
			if f.name == key {
				v, there = v.FieldByIndex(f.index), true
				break
			}
		}
		if !there {
			return false
		}
	}
	if v.Kind() != reflect.String {
		return false
	}
	v.SetString(value)
	return true
}
