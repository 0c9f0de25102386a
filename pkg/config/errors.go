package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one problem of a configuration, for its author.
type Error struct {
	File       string   `json:"file,omitempty"`    // as given to Load; empty for a cluster that came from no file
	Line       int      `json:"line,omitempty"`    // counted from 1; of the nearest field that is written there, 0 if unknown
	Path       string   `json:"path"`              // the field, like spec.hosts[1].address
	Value      string   `json:"value,omitempty"`   // what was found; empty if absent, too long, or perhaps a secret
	Msg        string   `json:"message"`           // what is wrong
	Allowed    []string `json:"allowed,omitempty"` // what is allowed, where it can be listed
	lately     bool     // a release before took it: what is on record may have it
	Suggestion string   `json:"suggestion,omitempty"` // the nearest right spelling
}

// Error returns one line: place, field, value, problem and remedy.
func (e Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		fmt.Fprintf(&b, "%s:%d: ", e.File, e.Line)
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	if e.Value != "" {
		fmt.Fprintf(&b, "%q: ", e.Value)
	}
	b.WriteString(e.Msg)
	if len(e.Allowed) > 0 {
		b.WriteString("; allowed: " + strings.Join(e.Allowed, ", "))
	}
	if e.Suggestion != "" {
		fmt.Fprintf(&b, "; did you mean %q?", e.Suggestion)
	}
	return b.String()
}

// Errors are all problems of a configuration.
type Errors []Error

// Most is how many problems are listed; the rest is counted.
const Most = 50

// Error returns one line for each problem.
func (e Errors) Error() string {
	var lines []string
	for _, one := range e[:min(len(e), Most)] {
		lines = append(lines, one.Error())
	}
	if len(e) > Most {
		lines = append(lines, fmt.Sprintf("and %d more", len(e)-Most))
	}
	return strings.Join(lines, "\n")
}

// place fills in file and lines and puts the problems in the file's order.
func (e Errors) place(file string, lines map[string]int) Errors {
	for i := range e {
		e[i].File = file
		for path := e[i].Path; e[i].Line == 0; path = parent(path) {
			e[i].Line = lines[path]
			if path == "" {
				break
			}
		}
	}
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path))
	})
	return e
}

// parent cuts the last field, index or key off a path.
func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }
