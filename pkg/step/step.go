// Package step holds the Step contract and the generic kinds of steps.
package step

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Step is one idempotent change to one host. Its exported fields are its whole
// input: they are marshalled into the plan, and hold no secret that marshals.
type Step interface {
	// String says what the step ensures: "service etcd".
	String() string
	// Precheck compares the host with what is wanted. It returns the change that
	// would close the gap, or nil when there is none. It never modifies the host.
	Precheck(context.Context, *runner.Runner) (*Change, error)
}

// Change is the gap between a host and a Step, and the way to close it.
type Change struct {
	Diff     string                      // what would change; never holds a secret
	Restarts []string                    // services and static pods that run, and are restarted by it
	Apart    bool                        // no other step finds anything else after it than before
	Run      func(context.Context) error // closes the gap
	Verify   func(context.Context) error // nil: Precheck again must find no change
	Rollback func(context.Context) error // nil: nothing to undo
	Resume   func(context.Context) error // once all that is undone with it is: what starts again as it was; nil: nothing
}

// then is one change that makes two, neither of which has a Verify; nil stands for no change.
func (c *Change) then(next *Change) *Change {
	switch {
	case c == nil:
		return next
	case next == nil:
		return c
	}
	return &Change{
		Diff: c.Diff + next.Diff, Restarts: append(c.Restarts, next.Restarts...),
		Run: func(ctx context.Context) error {
			if err := c.Run(ctx); err != nil {
				return err
			}
			return next.Run(ctx)
		},
		Rollback: func(ctx context.Context) error {
			for _, undo := range []func(context.Context) error{next.Rollback, c.Rollback} {
				if undo == nil {
					continue
				}
				if err := undo(ctx); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// Options are the few things a Step asks of the engine.
type Options struct {
	Timeout time.Duration `json:"timeout,omitempty"` // of Precheck, Run and Verify together; 0: DefaultTimeout
	Retries int           `json:"retries,omitempty"` // further tries after an error marked fault.Transient, but for the end of Timeout; 0: DefaultRetries, -1: none
	Limit   string        `json:"limit,omitempty"`   // name of an engine limit that the step counts against
}

// Defaults for Options.
const (
	DefaultTimeout = 5 * time.Minute
	DefaultRetries = 2
)

type withOptions struct {
	Step    `json:"step"`
	Options Options `json:"options"`
}

// With asks the engine to run s under o.
func With(s Step, o Options) Step { return withOptions{s, o} }

// OptionsOf returns the Options of s with defaults filled in.
func OptionsOf(s Step) Options {
	var o Options
	if w, ok := s.(withOptions); ok {
		o = w.Options
	}
	if o.Retries == 0 {
		o.Retries = DefaultRetries
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	return o
}

// Unwrap returns the step below With.
func Unwrap(s Step) Step {
	if w, ok := s.(withOptions); ok {
		return w.Step
	}
	return s
}

// Kind is the Go type of a step, for plans and drawings: "step.File".
func Kind(s Step) string { return fmt.Sprintf("%T", Unwrap(s)) }

// Digest is a short fingerprint of steps: of their kinds and their exported fields, but for the content of files that are read again.
func Digest(steps ...Step) (string, error) {
	h := sha256.New()
	for _, s := range steps {
		spec, err := json.Marshal(readOnce(s))
		if err != nil {
			return "", fmt.Errorf("marshalling step %q: %w", s, err)
		}
		fmt.Fprintf(h, "%s %s\n", Kind(s), spec)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// readOnce is a step without the content of files that are read again.
func readOnce(s Step) Step {
	f, ok := Unwrap(s).(Files)
	if !ok || !slices.ContainsFunc(f.List, func(x File) bool { return x.Reread }) {
		return s
	}
	f.List = slices.Clone(f.List)
	for i := range f.List {
		if f.List[i].Reread {
			f.List[i].Content = nil
		}
	}
	return f
}

// Verified is a Verify for changes that Run has verified itself.
func Verified(context.Context) error { return nil }

// Verify checks whether c closed the gap between the host and s.
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
