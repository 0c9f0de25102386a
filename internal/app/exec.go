package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Command is what Exec runs on hosts.
type Command struct {
	Line  string   // for a POSIX shell
	Login bool     // as the login user; else as root
	Hosts []string // on these hosts, or those of Roles; both empty: on all
	Roles []string
	In    io.Reader // read by the command, where it runs on one host only; nil: none

	// Streams are where the output of a host goes. Hosts write at the same time.
	Streams func(host string) (stdout, stderr io.Writer)
}

// On reports whether the command is to run on a host.
func (c Command) On(h *v1alpha1.Host) bool {
	has := func(r string) bool { return h.Is(v1alpha1.Role(r)) }
	return len(c.Hosts)+len(c.Roles) == 0 || slices.Contains(c.Hosts, h.Name) || slices.ContainsFunc(c.Roles, has)
}

// Executed is how a command ended on a host.
type Executed struct {
	Host string
	Code int   // its exit code, where Err is nil
	Err  error // it did not run to its end
}

// Exec runs a command on hosts of a cluster, side by side. No lock is taken, and nothing recorded. The error
// says what kept it from being started at all.
func (a *App) Exec(ctx context.Context, r Request, o Observer, c Command) ([]Executed, error) {
	s, err := a.open(ctx, r, o)
	if err != nil {
		return nil, err
	}
	hosts, err := chooseHosts(s.config.Spec.Hosts, c.Hosts, c.Roles)
	if err == nil && c.In != nil && len(hosts) > 1 {
		err = fault.Advise(fmt.Errorf("standard input is for one host, and these are %d", len(hosts)), "name the host with --host, or close standard input: < /dev/null")
	}
	if err != nil {
		return nil, fault.Exit(err, fault.ExitUsage)
	}
	if err := s.makeDir(); err != nil {
		return nil, err
	}
	s.config.Spec.Hosts = hosts
	f, failed := s.dialAll(ctx)
	defer f.hangUp()
	all := make([]Executed, len(hosts))
	place := func(host string) *Executed {
		return &all[slices.IndexFunc(hosts, func(h v1alpha1.Host) bool { return h.Name == host })]
	}
	for i, h := range hosts {
		all[i].Host = h.Name
	}
	for _, e := range append(failed, f.each(func(h *v1alpha1.Host) error {
		runner := f.hosts[h.Name]
		if runner == nil {
			return nil
		}
		stdout, stderr := c.Streams(h.Name)
		err := runner.Stream(ctx, connector.Cmd{Line: c.Line, Sudo: !c.Login, Stdin: c.In, Stdout: stdout, Stderr: stderr})
		if exit, ok := errors.AsType[*connector.ExitError](err); ok {
			place(h.Name).Code = exit.Code
			return nil
		}
		return err
	})...) {
		place(e.Host).Err = e.Err
	}
	return all, ctx.Err()
}

// chooseHosts are the hosts that are named or have one of the roles; all, where nothing is said.
func chooseHosts(all []v1alpha1.Host, names, roles []string) (chosen []v1alpha1.Host, err error) {
	known := make([]string, len(all))
	for i, h := range all {
		known[i] = h.Name
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fault.Advise(fmt.Errorf("the cluster has no host %s", n), "there are: "+human.Names(known, 10))
		}
	}
	for _, h := range all {
		if (Command{Hosts: names, Roles: roles}).On(&h) {
			chosen = append(chosen, h)
		}
	}
	if len(chosen) == 0 {
		err = fmt.Errorf("the cluster has no host with the role %s", human.Names(roles, 10))
	}
	return chosen, err
}

// Login runs the login shell of a host on a terminal.
func (a *App) Login(ctx context.Context, r Request, o Observer, host string, t connector.Terminal) error {
	s, err := a.open(ctx, r, o)
	if err != nil {
		return err
	}
	hosts, err := chooseHosts(s.config.Spec.Hosts, []string{host}, nil)
	if err != nil {
		return fault.Exit(err, fault.ExitUsage)
	}
	if err := s.makeDir(); err != nil {
		return err
	}
	s.config.Spec.Hosts = hosts
	f, failed := s.dialAll(ctx)
	defer f.hangUp()
	if len(failed) > 0 {
		return failed[0]
	}
	return f.hosts[host].Login(ctx, t)
}
