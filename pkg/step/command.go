package step

import (
	"context"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Command runs a shell script unless a probe succeeds, for what has no kind of its own.
type Command struct {
	What   string
	Unless string // read-only script; status 0: there is nothing to do
	Run    string // script; keep, made and note of runner.Change are at hand
	Undo   string `json:",omitempty"` // script that takes Run back
}

func (c Command) String() string { return c.What }

// Precheck runs the probe.
func (c Command) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	out, err := r.Sh(ctx, "if ( "+c.Unless+"\n) >/dev/null 2>&1; then echo yes; fi")
	if err != nil || out == "yes" {
		return nil, err
	}
	ch := &Change{Diff: "run: " + c.Run, Run: func(ctx context.Context) error {
		_, err := r.Change(ctx, c.Run)
		return err
	}}
	if c.Undo != "" {
		ch.Rollback = func(ctx context.Context) error {
			_, err := r.Sh(ctx, c.Undo)
			return err
		}
	}
	return ch, nil
}
