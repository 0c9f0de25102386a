package step

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Command runs a shell script unless a probe succeeds, for what has no kind of its own.
type Command struct {
	What   string
	Inputs string `json:",omitempty"` // of Script
	Script string `json:"-"`          // shell functions for the others
	Unless string // read-only script; status 0: there is nothing to do
	Run    string // script; keep, made and note of runner.Change are at hand
	Undo   string `json:",omitempty"` // script that takes Run back

	Makes    []string `json:"-"` // keys of what Run notes, see Owner
	Restarts []string `json:"-"` // see Change
}

func (c Command) String() string { return c.What }

// Owns is what Run notes.
func (c Command) Owns() ([]string, error) { return c.Makes, nil }

// Precheck runs the probe.
func (c Command) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	return Commands{List: []Command{c}}.Precheck(ctx, r)
}

// Commands are several commands, run in their order, whose probes are one round trip.
type Commands struct {
	What string
	List []Command
}

func (c Commands) String() string { return c.What }

// Owns is what the commands note.
func (c Commands) Owns() (keys []string, err error) {
	for _, one := range c.List {
		keys = append(keys, one.Makes...)
	}
	return keys, nil
}

// Precheck runs all probes.
func (c Commands) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	out, err := r.Sh(ctx, c.probes())
	if err != nil {
		return nil, err
	}
	return c.change(r, out)
}

// probes is a script that says which commands have something to do, for change.
func (c Commands) probes() string {
	var look strings.Builder
	for i, one := range c.List {
		fmt.Fprintf(&look, "if ( %s\n) >/dev/null 2>&1; then :; else echo %d; fi\n", one.Inputs+one.Script+one.Unless, i)
	}
	return look.String()
}

// change runs the commands that the answer of probes asks for; nil: there are none.
func (c Commands) change(r *runner.Runner, out string) (*Change, error) {
	if out == "" {
		return nil, nil
	}
	var todo []Command
	var restarts []string
	diff, undo := "", false
	for n := range strings.FieldsSeq(out) {
		i, err := strconv.Atoi(n)
		if err != nil || i >= len(c.List) {
			return nil, fmt.Errorf("probing %s: unexpected answer %q", c, out)
		}
		todo = append(todo, c.List[i])
		if c.What != "" {
			diff += c.List[i].What + "\n"
		}
		diff += "run: " + c.List[i].Run + "\n"
		undo, restarts = undo || c.List[i].Undo != "", append(restarts, c.List[i].Restarts...)
	}
	ch := &Change{Diff: strings.TrimSuffix(diff, "\n"), Restarts: restarts, Run: func(ctx context.Context) error {
		for _, one := range todo {
			if _, err := r.ChangeWith(ctx, one.Inputs+one.Script, one.Run); err != nil {
				return err
			}
		}
		return nil
	}}
	if undo {
		ch.Rollback = func(ctx context.Context) error {
			for _, one := range slices.Backward(todo) {
				if one.Undo == "" {
					continue
				}
				if _, err := r.Sh(ctx, one.Inputs+one.Script+one.Undo); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return ch, nil
}
