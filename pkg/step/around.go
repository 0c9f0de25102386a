package step

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Around runs Before, the Inner steps in order, and After: drain, upgrade,
// uncordon. When no inner step finds anything to do, nothing happens at all.
// After runs also when an inner step fails, unless KeepOnFailure; and when a run
// was cut off, the next one ends with After what it finds begun.
type Around struct {
	What          string
	Before        Step
	Inner         []Step
	After         Step
	KeepOnFailure bool // leave the state that Before made when an inner step fails
}

func (a Around) String() string { return a.What }

// Precheck asks the inner steps only.
func (a Around) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	var diff string
	for _, s := range a.Inner {
		c, err := s.Precheck(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("checking %s: %w", s, err)
		}
		if c != nil {
			diff += fmt.Sprintf("%s\n%s\n", s, c.Diff)
		}
	}
	begun, err := r.Exists(ctx, a.record())
	if err != nil || diff == "" && begun == nil {
		return nil, err
	}
	var undo []func(context.Context) error
	return &Change{
		Diff: fmt.Sprintf("%s\n%s%s", a.Before, diff, a.After),
		Run: func(ctx context.Context) (err error) {
			if _, err := r.Change(ctx, "mkdir -p $S; touch "+a.record()); err != nil {
				return err
			}
			if err := apply(ctx, r, a.Before, &undo); err != nil {
				return err
			}
			for _, s := range a.Inner {
				if err = apply(ctx, r, s, &undo); err != nil {
					break
				}
			}
			if err != nil && a.KeepOnFailure {
				return err
			}
			if errors.Is(ctx.Err(), context.DeadlineExceeded) { // After has a little time of its own
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				defer cancel()
			}
			after := apply(ctx, r, a.After, &undo)
			if after == nil {
				after = r.Remove(ctx, a.record())
			}
			return errors.Join(err, after)
		},
		Rollback: func(ctx context.Context) error {
			for _, u := range slices.Backward(undo) {
				if err := u(ctx); err != nil {
					return err
				}
			}
			return r.Remove(ctx, a.record())
		},
	}, nil
}

// record is the file on the host that says that a run has begun.
func (a Around) record() string {
	return runner.StateDir + "/around-" + strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) || c == '.' {
			return c
		}
		return '-'
	}, a.What)
}

// apply brings the host to what s wants, and verifies it.
func apply(ctx context.Context, r *runner.Runner, s Step, undo *[]func(context.Context) error) error {
	c, err := s.Precheck(ctx, r)
	if err != nil || c == nil {
		return err
	}
	if c.Rollback != nil {
		*undo = append(*undo, c.Rollback)
	}
	if err := c.Run(ctx); err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	if err := Verify(ctx, r, s, c); err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return nil
}

// Verify looks whether c closed the gap between the host and s.
func Verify(ctx context.Context, r *runner.Runner, s Step, c *Change) error {
	if c.Verify != nil {
		return c.Verify(ctx)
	}
	again, err := s.Precheck(ctx, r)
	if err == nil && again != nil {
		err = fmt.Errorf("still differs after the change:\n%s", again.Diff)
	}
	return err
}
