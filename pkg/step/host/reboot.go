package host

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// What a machine is restarted for: what asks for it, everything, nothing.
const (
	RebootNeeded = ""
	RebootAlways = "always"
	RebootNever  = "never"
)

// Back is how long a machine may take to stop and to start again: servers test their memory.
const Back = 15 * time.Minute

// Machine is what is told to be restarted where a machine is.
const Machine = "machine"

// Update is what of an operating system is brought to newer versions, and when the machine is restarted for it.
type Update struct {
	Kernel   bool      // the packages of the kernel
	Packages []string  // those of these names, or patterns of a shell; neither: all that are installed
	Reboot   string    // see Reboot*
	Since    time.Time // RebootAlways: a machine that has started since then is right
}

// kernels are the packages of kernels, by package manager. What they need comes along.
var kernels = map[string][]string{"apt": {"linux-image-*", "linux-headers-*"}, "dnf": {"kernel*"}, "yum": {"kernel*"}}

// Updated brings packages of a host to their newest versions, and then restarts the machine where that is needed.
func Updated(c *cluster.Cluster, host string, u Update) []step.Step {
	f := c.FactsOf(host)
	newest := step.Newest{
		Packages: step.Packages{Manager: f.PackageManager, Names: u.Packages, From: c.Repository(host)}, Restarts: []string{Machine + " (if what is upgraded needs it)"},
	}
	if u.Kernel {
		newest.Names, newest.Restarts = kernels[f.PackageManager], []string{Machine}
	}
	restarted := Restarted{Own: f.Container == ""}
	switch u.Reboot {
	case RebootNever:
		newest.Restarts = []string{"services of what is upgraded"}
		return []step.Step{step.With(newest, step.Options{Timeout: time.Hour})}
	case RebootAlways:
		newest.Restarts, restarted.Since = []string{Machine}, u.Since
	}
	return []step.Step{step.With(newest, step.Options{Timeout: time.Hour}), step.With(restarted, step.Options{Timeout: Back + 5*time.Minute, Retries: -1})}
}

// Restarted is a machine that runs what is installed: it is restarted where it does not.
type Restarted struct {
	Own   bool      // the machine has a kernel of its own
	Since time.Time `json:"-"` // it is also restarted where it has not been since then; zero: it is not
}

func (Restarted) String() string { return "machine runs what is installed" }

func (s Restarted) library() string {
	own := ""
	if s.Own {
		own = "y"
	}
	return runner.Inputs("OWN", own, "KERNEL_NOTE", kernelNote) + runner.Script(scripts, "reboot")
}

// Precheck asks which boot it is, since when, and what asks for another one.
func (s Restarted) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	out, err := r.Sh(ctx, s.library()+"boot; uptime_; due")
	if err != nil {
		return nil, err
	}
	lines := strings.Split(out, "\n")
	if len(lines) < 2 {
		return nil, fmt.Errorf("asking for the boot of the machine: unexpected answer %q", out)
	}
	up, err := strconv.Atoi(lines[1])
	if err != nil {
		return nil, fmt.Errorf("reading its uptime: %w", err)
	}
	why := lines[2:]
	if now := time.Now(); !s.Since.IsZero() && now.Add(-time.Duration(up)*time.Second).Before(s.Since) {
		why = append(why, "it is asked for")
	}
	if len(why) == 0 {
		return nil, nil
	}
	return &step.Change{
		Diff: "restart the machine: " + strings.Join(why, "\nrestart the machine: "), Restarts: []string{Machine}, Verify: step.Verified,
		Run: func(ctx context.Context) error { return s.restart(ctx, r, lines[0]) },
	}, nil
}

// restart restarts the machine, apart from this connection, which breaks: so the command itself ends well. Then it waits until another boot answers.
func (s Restarted) restart(whole context.Context, r *runner.Runner, boot string) error {
	if _, err := r.Sh(whole, "[ \"$(systemctl is-system-running)\" = stopping ] || systemd-run --quiet sh -c 'sleep 1; exec systemctl reboot'"); err != nil {
		return fmt.Errorf("restarting the machine: %w", err)
	}
	ctx, cancel := context.WithTimeout(whole, Back)
	defer cancel()
	last := "it has not stopped yet"
	for pause := time.Second; ; pause = min(pause*3/2, 5*time.Second) {
		select {
		case <-ctx.Done():
			if whole.Err() != nil {
				return context.Cause(whole)
			}
			err := fmt.Errorf("the machine is not back %s after it was told to restart: %s", human.Duration(Back), last)
			return fault.Advise(err, "look at its console, and start it; then run the same command again: it continues, and lets pods back")
		case <-time.After(pause):
		}
		is, err := s.ask(ctx, r, "boot")
		switch {
		case err != nil:
			last = human.Line(err.Error())
		case is != boot:
			return s.right(ctx, r)
		}
		step.Tell(ctx, "waiting for the machine: "+last)
	}
}

// kernelNote is the file that says with which kernel a machine has started instead of which other one, so that it is not restarted for that again.
const kernelNote = runner.StateDir + "/kernel"

// right makes sure that the kernel runs that was to start. Where another one does, this is an error once: the boot loader may have been told so.
func (s Restarted) right(ctx context.Context, r *runner.Runner) error {
	other, err := s.ask(ctx, r, "started")
	if err != nil || other == "" {
		return err
	}
	if _, err := r.Sh(ctx, "mkdir -p "+runner.StateDir+"; echo "+runner.Quote(other)+" >"+kernelNote); err != nil {
		return err
	}
	return fault.Advise(errors.New("the machine has restarted, but "+other),
		"see which kernel its boot loader starts (GRUB_DEFAULT, grub2-editenv list), and why; correct that and restart it. If it is meant so, run the same command again: it is not restarted for that any more")
}

// ask asks a machine that may be about to go: a connection that hangs is given up soon.
func (s Restarted) ask(ctx context.Context, r *runner.Runner, what string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 15*time.Second, errors.New("it does not answer"))
	defer cancel()
	return r.Sh(ctx, s.library()+what)
}
