package config

import (
	_ "embed"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
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
	Change      string    `yaml:"x-change"` // the tag change; empty: it depends on the field below
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
