package runner

import (
	"context"
	"fmt"
	"strings"
)

// Restore undoes everything that the ledger on the host lists, newest first:
// what kubexm found is put back, what it added is removed. It works without
// the configuration that made the changes. tell is told of packages that stay, as others
// need them, or stay away; nil: nobody. The lock of the host stays.
func (r *Runner) Restore(ctx context.Context, tell func(text string)) error {
	return r.restore(ctx, "", tell)
}

// Undo is Restore of these lines of the ledger alone, which then forgets them but for those of
// these packages. Lines that it does not have are passed over, so that it can be done again.
func (r *Runner) Undo(ctx context.Context, tell func(text string), lines []string) error {
	if len(lines) == 0 {
		return nil // no lines would stand for all
	}
	return r.restore(ctx, strings.Join(lines, "\n"), tell)
}

func (r *Runner) restore(ctx context.Context, only string, tell func(text string)) error {
	out, err := r.ask(ctx, state+"ONLY="+Quote(only)+"\n"+ledgerScript, restoreScript)
	if err != nil {
		return fmt.Errorf("restoring what was there before: %w", err)
	}
	if out != "" && tell != nil {
		tell(out)
	}
	return nil
}

// Ledger returns the lines of the ledger, in the order in which they were written. One that a full
// disk has torn is left out.
func (r *Runner) Ledger(ctx context.Context) ([]string, error) {
	out, err := r.ask(ctx, state+lookScript, "ledger")
	if err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	return lines(out), nil
}
