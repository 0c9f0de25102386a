package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// connecting is how many hosts are connected to at a time.
const connecting = 64

// HostError is a host that could not be reached or asked.
type HostError struct {
	Host string
	Err  error
}

func (e *HostError) Error() string { return "host " + e.Host + ": " + e.Err.Error() }
func (e *HostError) Unwrap() error { return e.Err }

// dialAll connects to every host, and returns those that cannot be reached.
func (s *session) dialAll(ctx context.Context) []*HostError {
	dial := s.dialer()
	slow := time.AfterFunc(3*time.Second, s.tellMissing)
	defer slow.Stop()
	return s.each(func(h *v1alpha1.Host) error { return dial(ctx, h) })
}

// dialer returns what connects to hosts, and keeps their connections.
func (s *session) dialer() func(context.Context, *v1alpha1.Host) error {
	dial := s.Dial
	if dial == nil {
		dial = s.dialSSH
	}
	s.bastions = map[connector.SSHConfig]func() (connector.Connector, error){}
	s.hosts = map[string]*runner.Runner{plan.Control: runner.New(plan.Control, connector.Local()), plan.API: runner.New(plan.API, apiPlace{s})}
	known := filepath.Join(s.dir, "known_hosts")
	return func(ctx context.Context, h *v1alpha1.Host) error {
		conn, err := dial(ctx, h, known)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hosts[h.Name] = runner.New(h.Name, conn)
		return nil
	}
}

// tellMissing names the hosts that do not answer yet.
func (s *session) tellMissing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []string
	for i := range s.config.Spec.Hosts {
		if name := s.config.Spec.Hosts[i].Name; s.hosts[name] == nil {
			missing = append(missing, name)
		}
	}
	s.notice("still waiting for an answer from %s", human.Names(missing, 10))
}

// patience is how long a host may take to tell its facts: one whose disk hangs
// must not hold back a run for ever.
const patience = time.Minute

// gather reads the facts of all hosts that are connected.
func (s *session) gather(ctx context.Context) (facts map[string]*runner.Facts, failed []*HostError) {
	facts = map[string]*runner.Facts{}
	failed = s.eachConnected(ctx, patience, func(ctx context.Context, r *runner.Runner) error {
		hosts := s.config.Spec.Hosts
		h := &hosts[slices.IndexFunc(hosts, func(h v1alpha1.Host) bool { return h.Name == r.Host })]
		f, err := r.Facts(ctx, cluster.DataDirs(&s.config.Spec, h)...)
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		facts[h.Name] = f
		return nil
	})
	return facts, failed
}

// eachConnected calls f for all hosts that are connected at once, and returns those that failed, or did not answer in
// a time. A connection that is lost is recreated, once.
func (s *session) eachConnected(ctx context.Context, most time.Duration, f func(context.Context, *runner.Runner) error) []*HostError {
	return s.each(func(h *v1alpha1.Host) error {
		s.mu.Lock()
		r := s.hosts[h.Name]
		s.mu.Unlock()
		if r == nil {
			return nil
		}
		ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no answer in %s", most))
		defer cancel()
		err := f(ctx, r)
		if fault.IsTransient(err) {
			err = f(ctx, r)
		}
		return err
	})
}

// each calls f for all hosts at once and returns those that failed, in their order.
func (s *session) each(f func(h *v1alpha1.Host) error) []*HostError {
	var group errgroup.Group
	errs := make([]*HostError, len(s.config.Spec.Hosts))
	group.SetLimit(connecting)
	for i := range s.config.Spec.Hosts {
		group.Go(func() error {
			h := &s.config.Spec.Hosts[i]
			caught := func() (err error) { defer fault.Caught(&err); return f(h) }
			if err := caught(); err != nil {
				errs[i] = &HostError{h.Name, err}
			}
			return nil
		})
	}
	_ = group.Wait() // errs has them all
	return slices.DeleteFunc(errs, func(e *HostError) bool { return e == nil })
}

// leaveOut leaves hosts that are down and not needed out of the cluster, where hosts may be
// missing, and returns those without which it cannot go on.
func (s *session) leaveOut(failed []*HostError) (needed []*HostError, err error) {
	var down, spare []string
	for _, e := range failed {
		if isDown(e.Err) {
			down = append(down, e.Host)
		}
	}
	for _, e := range failed {
		why := ""
		if isDown(e.Err) {
			if why = s.cluster.Needed(e.Host, down); why == "" {
				spare = append(spare, e.Host)
				continue
			}
		}
		if s.AllowMissing && why != "" {
			e.Err = adviseMore(e.Err, "--allow-missing cannot leave it out: "+why)
		}
		needed = append(needed, e)
	}
	if !s.AllowMissing {
		if needed == nil {
			for _, e := range failed {
				e.Err = adviseMore(e.Err, "to continue without hosts that are down: --allow-missing; a later run brings them up to date")
			}
		}
		return failed, nil
	}
	if s.cluster.LeaveOut(spare...); spare != nil && s.records != nil {
		if s.cluster.Last, err = s.records.Facts(); err != nil {
			return needed, err
		}
	}
	if needed == nil {
		err = s.checkMissing()
	}
	return needed, err
}

// checkMissing refuses to go on without machines that would decide what the cluster becomes.
func (s *session) checkMissing() error {
	missing := s.cluster.Missing()
	unknown := slices.DeleteFunc(slices.Clone(missing), func(h string) bool { return s.cluster.Last[h] != nil || !s.cluster.IsNode(h) })
	switch {
	case len(missing) == 0:
		return nil
	case len(s.cluster.Workers()) == 0 && !s.cluster.Lives():
		return fault.Advise(fmt.Errorf("no worker can be reached (%s): there would be nowhere for pods to run", human.Names(missing, 10)),
			"see why: a bastion or a network that they share? bring one up, and run again")
	case len(unknown) > 0 && s.config.Spec.Kubernetes.ProxyMode == "":
		return fault.Advise(fmt.Errorf("how kube-proxy works follows from the kernels of all nodes, and %s cannot be asked", human.Names(unknown, 10)),
			"set spec.kubernetes.proxyMode: nftables where all have kernel 5.13 or newer, else iptables")
	}
	return nil
}

// isDown reports whether a host did not answer, rather than answer that it lets nobody in.
func isDown(err error) bool {
	return fault.IsTransient(err) || errors.Is(err, connector.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded)
}

// adviseMore adds to the advice for a host that is down.
func adviseMore(err error, more string) error {
	return fault.AdviseMore(fault.Advise(err, "check that the machine is up"), more)
}

func joined(failed []*HostError) error {
	errs := make([]error, len(failed))
	for i, e := range failed {
		errs[i] = e
	}
	return errors.Join(errs...)
}

func (s *session) dialSSH(ctx context.Context, h *v1alpha1.Host, knownHosts string) (connector.Connector, error) {
	conf := sshConfig(h.Name, h.Address, h.Credentials, knownHosts)
	conf.SudoPassword = h.SudoPassword
	conf.ConnectTimeout, conf.KeepAlive = h.Timeouts.Connect.Duration, h.Timeouts.KeepAlive.Duration
	if h.Bastion != nil {
		bastion, err := s.bastion(ctx, h.Bastion, h.Timeouts, knownHosts)
		if err != nil {
			return nil, err
		}
		conf.Bastion = bastion
	}
	return connector.SSH(ctx, conf)
}

// bastion connects to a bastion once for all hosts behind it.
func (s *session) bastion(ctx context.Context, b *v1alpha1.Bastion, timeouts v1alpha1.Timeouts, knownHosts string) (connector.Connector, error) {
	conf := sshConfig("bastion "+b.Address, b.Address, b.Credentials, knownHosts)
	conf.ConnectTimeout, conf.KeepAlive = timeouts.Connect.Duration, timeouts.KeepAlive.Duration
	s.mu.Lock()
	dial := s.bastions[conf]
	if dial == nil {
		dial = sync.OnceValues(func() (connector.Connector, error) { return connector.SSH(ctx, conf) })
		s.bastions[conf] = dial
	}
	s.mu.Unlock()
	return dial()
}

func sshConfig(name, address string, c v1alpha1.Credentials, knownHosts string) connector.SSHConfig {
	return connector.SSHConfig{
		Name: name, Address: address, Port: c.Port, User: c.User, Password: c.Password,
		PrivateKeyPath: c.PrivateKeyPath, Passphrase: c.Passphrase, KnownHosts: knownHosts,
	}
}

func joinLines(ls []string) string { return strings.Join(ls, "\n  ") }
