package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/connector"
)

// LockTime is how long a lock outlives its last renewal.
const LockTime = time.Minute

// lockDir has the lock. A reboot empties it, and no lock is worth anything after one.
const lockDir = "/run/kubexm"

// atLock is the input of lockScript.
const atLock = "D=" + lockDir + "\n"

// Holder is who works on a cluster.
type Holder struct {
	Token   string // random, of letters and digits
	Who     string // for people, one line
	Known   bool   // does nothing on a host that is not part of Cluster
	Cluster string // by name
}

// HeldError is a lock that another holds.
type HeldError struct{ Who string }

func (e *HeldError) Error() string { return "another kubexm is at work: " + e.Who }

// lockHeld is the exit status of a script that found another holder.
const lockHeld = 73

// Lock takes the lock of the host for LockTime, or renews it. Another that holds it is a *HeldError.
func (r *Runner) Lock(ctx context.Context, h Holder) error {
	script := fmt.Sprintf(`lock "$TOKEN" %d "$HOLDER"`, int(LockTime.Seconds()))
	if h.Known {
		script = `! grep -qsx ` + Quote("cluster="+h.Cluster) + ` "$S/env" || ` + script
	}
	out, err := r.ask(ctx, state+atLock+"TOKEN="+Quote(h.Token)+"\nHOLDER="+Quote(h.Who)+"\n"+lockScript, script)
	if exit, ok := errors.AsType[*connector.ExitError](err); ok && exit.Code == lockHeld {
		return &HeldError{out}
	}
	if err != nil {
		return fmt.Errorf("taking the lock: %w", err)
	}
	return nil
}

// Unlock removes the lock of a holder, or whosever it is when the token is empty.
func (r *Runner) Unlock(ctx context.Context, token string) error {
	if _, err := r.ask(ctx, atLock+lockScript, "unlock "+Quote(token)); err != nil {
		return fmt.Errorf("removing the lock: %w", err)
	}
	return nil
}

// LockedBy returns whose the lock is; empty: nobody's. It may have expired.
func (r *Runner) LockedBy(ctx context.Context) (Holder, error) {
	out, err := r.ask(ctx, atLock+lockScript, `held; printf '%s\n' "$token" "$holder"`)
	if err != nil {
		return Holder{}, fmt.Errorf("reading the lock: %w", err)
	}
	token, who, _ := strings.Cut(out, "\n")
	return Holder{Token: token, Who: who}, nil
}
