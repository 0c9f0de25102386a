package config

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

//go:generate go test -run TestGenerated -update .

//go:embed cluster.schema.json
var schemaJSON []byte

// Schema returns the JSON Schema of cluster.yaml (draft 2020-12), for editors.
func Schema() []byte { return schemaJSON }

// schema is a part of the JSON Schema, as far as Explain needs it.
type schema struct {
	Type        string
	Description string
	Default     string
	Enum        []string
	Required    []string
	Minimum     string
	Maximum     string
	Items       *schema
	Additional  yaml.Node `yaml:"additionalProperties"`
	Properties  yaml.Node // in the order of the file
}

type property struct {
	name     string
	required bool
	*schema
}

func loadSchema() (*schema, error) {
	s := &schema{}
	if err := yaml.Unmarshal(schemaJSON, s); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	return s, nil
}

// fields returns the fields of an object, or of the objects in a list or map.
func (s *schema) fields() []property {
	o := s.element()
	var all []property
	for i := 0; i+1 < len(o.Properties.Content); i += 2 {
		p := property{name: o.Properties.Content[i].Value, schema: &schema{}}
		if o.Properties.Content[i+1].Decode(p.schema) != nil {
			continue
		}
		for _, r := range o.Required {
			p.required = p.required || r == p.name
		}
		all = append(all, p)
	}
	return all
}

func (s *schema) element() *schema {
	if s.Items != nil {
		return s.Items.element()
	}
	if values := (&schema{}); s.Additional.Kind == yaml.MappingNode && s.Additional.Decode(values) == nil {
		return values.element()
	}
	return s
}

// kind names the type: text, number, object, list of text, map of list of text...
func (s *schema) kind() string {
	values := &schema{}
	switch {
	case s.Items != nil:
		return "list of " + s.Items.kind()
	case s.Additional.Kind == yaml.MappingNode && s.Additional.Decode(values) == nil:
		return "map of " + values.kind()
	}
	name, ok := map[string]string{"string": "text", "integer": "whole number", "boolean": "true or false"}[s.Type]
	if !ok {
		return "object"
	}
	return name
}

// facts are the type and limits of a field in one line.
func (p property) facts() string {
	f := []string{p.kind()}
	if p.required {
		f = append(f, "required")
	}
	if p.Default != "" {
		f = append(f, "default "+p.Default)
	}
	if enum := p.element().Enum; len(enum) > 0 {
		f = append(f, "one of "+strings.Join(enum, ", "))
	}
	switch {
	case p.Maximum != "":
		f = append(f, p.Minimum+" to "+p.Maximum)
	case p.Minimum != "":
		f = append(f, "at least "+p.Minimum)
	}
	return strings.Join(f, "; ")
}

var indexes = regexp.MustCompile(`\[[^\]]*\]`)

// Explain tells what a field means, like kubectl explain: its type, default,
// allowed values and its fields. The path is like spec.hosts.address; indexes
// and a leading "spec." may be there or not. An empty path is the whole file.
// An unknown field gives an Error with fault.ExitUsage.
func Explain(path string) (string, error) {
	root, err := loadSchema()
	if err != nil {
		return "", err
	}
	at, walked := property{schema: root}, ""
	for _, name := range strings.FieldsFunc(indexes.ReplaceAllString(path, ""), func(r rune) bool { return r == '.' }) {
		next, ok := at.child(name)
		if spec, found := at.child("spec"); !ok && found {
			if next, ok = spec.child(name); ok {
				walked = "spec"
			}
		}
		if !ok {
			return "", unknownField(join(walked, name), name, at.fields())
		}
		at, walked = next, join(walked, next.name)
		if next.Items != nil {
			walked += "[]"
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "FIELD: %s (%s)\n\n%s", cmp.Or(walked, "cluster.yaml"), at.facts(), wrap(at.Description, "  "))
	if fields := at.fields(); len(fields) > 0 {
		b.WriteString("\nFIELDS:\n")
		for _, f := range fields {
			fmt.Fprintf(&b, "  %s (%s)\n%s", f.name, f.facts(), wrap(f.Description, "      "))
		}
	}
	return b.String(), nil
}

func (p property) child(name string) (property, bool) {
	for _, f := range p.fields() {
		if strings.EqualFold(f.name, name) {
			return f, true
		}
	}
	return property{}, false
}

func unknownField(path, name string, fields []property) error {
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.name
	}
	e := Error{Path: path, Msg: "unknown field", Suggestion: Nearest(name, known)}
	if e.Suggestion == "" {
		e.Allowed = known
	}
	return fault.Exit(e, fault.ExitUsage)
}

// wrap breaks a text into indented lines of at most 100 columns.
func wrap(text, indent string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column == 0:
			b.WriteString(indent + word)
			column = len(indent) + len(word)
		case column+1+len(word) > 100:
			b.WriteString("\n" + indent + word)
			column = len(indent) + len(word)
		default:
			b.WriteString(" " + word)
			column += 1 + len(word)
		}
	}
	return b.String() + "\n"
}
