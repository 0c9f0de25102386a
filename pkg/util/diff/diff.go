// Package diff shows how one text differs from another.
package diff

import (
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Unified returns the difference in unified format, empty when there is none.
func Unified(name, before, after string) string {
	d := string(diff.Diff(name, []byte(before), name, []byte(after)))
	_, d, _ = strings.Cut(d, "\n") // the first line repeats the names
	return d
}
