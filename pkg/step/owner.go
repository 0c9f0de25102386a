package step

import (
	"path"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Owner is a step that makes more on its host than the files that it Writes.
type Owner interface {
	Step
	// Owns returns the keys of what the step makes, or may make, as runner.Inventory has them.
	Owns() ([]string, error)
}

// Owns returns the keys of what a step makes on its host; of a Writer that is no Owner the files.
func Owns(s Step) ([]string, error) {
	switch s := Unwrap(s).(type) {
	case Owner:
		return s.Owns()
	case Writer:
		files, err := s.Writes()
		return pathsOf(files), err
	}
	return nil, nil
}

func pathsOf(files []File) []string {
	var keys []string
	for _, f := range files {
		keys = append(keys, "path "+path.Clean(f.Path))
	}
	return keys
}

// pruned are the kinds of what goes when no step owns it any more. What else the ledger lists, as swap, kernel
// parameters and packages that others brought along, stays until the cluster is deleted.
var pruned = []string{"path", "block", "unit", "service", "package", "enabled", "active", "dir"}

// Gone returns the keys of what a host has that nothing owns any more, and those of the directories
// that may be empty then.
func Gone(has, owned []string) (keys []string) {
	held := map[string]bool{} // directories in which something stays
	for _, k := range owned {
		for _, d := range above(k) {
			held[d] = true
		}
	}
	add := func(k string) {
		if !held[k] && !slices.Contains(keys, k) && !slices.ContainsFunc(owned, func(o string) bool { return runner.Covers(o, k) }) {
			keys = append(keys, k)
		}
	}
	for _, k := range has {
		if verb, _, _ := strings.Cut(k, " "); slices.Contains(pruned, verb) {
			add(k)
		}
	}
	for _, k := range slices.Clone(keys) {
		for _, d := range above(k) {
			add(d)
		}
	}
	return keys
}

// Kept returns those of the keys of what is owned that ones of what is gone stand for, too.
func Kept(gone, owned []string) []string {
	return slices.DeleteFunc(slices.Clone(owned), func(o string) bool {
		return !slices.ContainsFunc(gone, func(g string) bool { return runner.Covers(g, o) })
	})
}

// above are the keys of the directories above what a key is about.
func above(key string) (dirs []string) {
	verb, p, _ := strings.Cut(key, " ")
	if verb == "block" {
		p, _, _ = strings.Cut(p, "\t")
	}
	if !path.IsAbs(p) {
		return nil
	}
	for p = path.Dir(p); p != "/"; p = path.Dir(p) {
		dirs = append(dirs, "dir "+p)
	}
	return dirs
}
