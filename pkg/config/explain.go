package config

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

var indexes = regexp.MustCompile(`\[[^\]]*\]`)

// Explain tells what a field means, like kubectl explain: its type, default,
// allowed values and its fields. The path is like spec.hosts.address; indexes
// and a leading "spec." may be there or not. An empty path is the whole file.
// An unknown field gives an Error with fault.ExitUsage.
func Explain(path string) (string, error) {
	at, walked, err := find(path)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "FIELD: %s (%s)\n\n%s", cmp.Or(walked, "cluster.yaml"), at.facts(), wrap(at.Description, "  "))
	if at.Change != "" {
		fmt.Fprintf(&b, "\nCHANGE on a cluster that runs:\n%s", wrap(parsePolicy(at.Change).String()+".", "  "))
	}
	if fields := at.fields(); len(fields) > 0 {
		b.WriteString("\nFIELDS:\n")
		for _, f := range fields {
			fmt.Fprintf(&b, "  %s (%s)\n%s", f.name, f.summary(), wrap(f.Description, "      "))
		}
	}
	return b.String(), nil
}

// ExplainAll is Explain for a field with all that is below it: a line for each, indented as it is written.
func ExplainAll(path string) (string, error) {
	at, walked, err := find(path)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "FIELD: %s (%s)\n\n", cmp.Or(walked, "cluster.yaml"), at.facts())
	var list func(p property, indent string)
	list = func(p property, indent string) {
		for _, f := range p.fields() {
			fmt.Fprintf(&b, "%s%s (%s)\n", indent, f.name, f.summary())
			list(f, indent+"  ")
		}
	}
	list(at, "  ")
	return b.String(), nil
}

// Complete lists the fields that a beginning of a path may stand for, with their descriptions behind a tab: for shells.
func Complete(path string) []string {
	above, begun := "", path
	if i := strings.LastIndex(path, "."); i >= 0 {
		above, begun = path[:i], path[i+1:]
	}
	at, _, err := find(above)
	if err != nil {
		return nil
	}
	fields := at.fields()
	if spec, ok := at.child("spec"); ok { // which may be left out
		fields = append(fields, spec.fields()...)
	}
	var all []string
	for _, f := range fields {
		if strings.HasPrefix(strings.ToLower(f.name), strings.ToLower(begun)) {
			all = append(all, path[:len(path)-len(begun)]+f.name+"\t"+f.Description)
		}
	}
	return all
}

// find returns the field at a path as Explain takes it, and the path in full.
func find(path string) (at property, walked string, err error) {
	root, err := loadSchema()
	if err != nil {
		return at, "", err
	}
	at = property{schema: root}
	for _, name := range strings.FieldsFunc(indexes.ReplaceAllString(path, ""), func(r rune) bool { return r == '.' }) {
		next, ok := at.child(name)
		if spec, found := at.child("spec"); !ok && found {
			if next, ok = spec.child(name); ok {
				walked = "spec"
			}
		}
		if !ok {
			return at, "", unknownField(join(walked, name), name, at.fields())
		}
		at, walked = next, join(walked, next.name)
		if next.Items != nil {
			walked += "[]"
		}
	}
	return at, walked, nil
}

// summary is facts with the way of a change.
func (p property) summary() string {
	if p.Change == "" {
		return p.facts()
	}
	return p.facts() + "; change: " + string(parsePolicy(p.Change).Way)
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
