package step

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Absent takes back some of what kubexm made on a host: what was there before is there again, and the rest of the ledger
// stays as it is. A unit is stopped and disabled, a package removed unless others need it, a directory only when it is
// empty. What the ledger does not have was not made by kubexm, and is left alone.
//
// It has no rollback: what it removed comes back by being configured again.
type Absent struct {
	What   string
	Items  []string // keys, see runner.Inventory
	Except []string `json:",omitempty"` // keys of what stays although Items cover it
}

func (a Absent) String() string { return "remove " + a.What }

// Precheck reads the ledger.
func (a Absent) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	lines, err := a.lines(ctx, r)
	if err != nil || lines == nil {
		return nil, err
	}
	return &Change{
		Diff: "- " + strings.ReplaceAll(strings.Join(lines, "\n- "), "\t", " "),
		Run: func(ctx context.Context) error {
			return r.Undo(ctx, func(text string) { Tell(ctx, text) }, lines)
		},
		Verify: func(ctx context.Context) error {
			left, err := a.lines(ctx, r)
			left = slices.DeleteFunc(left, func(l string) bool { // others need it, or there is no room
				return strings.HasPrefix(l, "package ") || strings.HasPrefix(l, "lost ")
			})
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("still there: %s", strings.Join(left, ", "))
			}
			return err
		},
	}, nil
}

// lines are those of the ledger that are to go.
func (a Absent) lines(ctx context.Context, r *runner.Runner) ([]string, error) {
	all, err := r.Ledger(ctx)
	if err != nil {
		return nil, err
	}
	covered := func(keys []string, key string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { return runner.Covers(k, key) })
	}
	var found, lost []string
	packages := false
	for _, l := range all {
		if strings.HasPrefix(l, "lost ") {
			lost = append(lost, l)
		} else if key := runner.Key(l); covered(a.Items, key) && !covered(a.Except, key) {
			found = append(found, l)
			packages = packages || strings.HasPrefix(l, "package ")
		}
	}
	if packages { // which had made room is not known; what there is no room for stays away
		found = append(found, lost...)
	}
	return found, nil
}

// Inventory keeps on a host the list of what kubexm made there, see runner.Inventory. The plan fills in Owns: what all its steps on
// that host own. Before these begin, the list also has what the host Has: so nothing is forgotten, whenever
// a run ends.
type Inventory struct {
	With []File   `json:",omitempty"` // are written in the same round trip
	Has  []string `json:"-"`
	Owns []string
}

func (i Inventory) String() string {
	if i.With == nil {
		return "inventory"
	}
	return "record"
}

// Writes are the files beside the list, which depends on the host.
func (i Inventory) Writes() ([]File, error) { return i.With, nil }

// Precheck reads the files.
func (i Inventory) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	list, err := runner.Inventory(slices.Concat(i.Has, i.Owns))
	if err != nil {
		return nil, err
	}
	return Files{List: append(slices.Clone(i.With), File{Path: runner.InventoryPath, Content: list, Mode: 0o644})}.Precheck(ctx, r)
}
