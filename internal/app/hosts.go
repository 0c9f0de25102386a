package app

import (
	"context"
	"errors"
	"fmt"
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

// fleet are the hosts of a cluster, as far as they are connected. All must be hung up.
type fleet struct {
	of       *session
	mu       sync.Mutex // guards what many goroutines gather
	hosts    map[string]*runner.Runner
	bastions map[connector.SSHConfig]func() (connector.Connector, error)
	holder   runner.Holder // of the hosts' locks
	unlock   func()        // lets go of them; nil: they were not taken
	taken    chan struct{} // closed when somebody else has one of them, or the lease
	takenBy  error         // set before that
	silent   []*HostError  // machines that showed no host key to be asked about
	unkept   error         // why keys that were agreed to are not recorded
}

// dialAll connects to every host, and returns those that cannot be reached.
func (s *session) dialAll(ctx context.Context) (*fleet, []*HostError) {
	f := s.fleet()
	if s.app.Dial == nil {
		bastions, hosts := f.meet(ctx)
		if f.unkept != nil {
			s.notice("warning: %v", f.unkept)
		}
		defer f.tellRecorded(append(bastions, hosts...))
	}
	slow := time.AfterFunc(3*time.Second, f.tellMissing)
	defer slow.Stop()
	return f, f.each(func(h *v1alpha1.Host) error { return f.dial(ctx, h) })
}

// fleet has no host connected but this machine.
func (s *session) fleet() *fleet {
	return &fleet{
		of: s, hosts: map[string]*runner.Runner{plan.Control: runner.New(plan.Control, connector.Local())},
		bastions: map[connector.SSHConfig]func() (connector.Connector, error){}, taken: make(chan struct{}),
	}
}

// dial connects to a host, and keeps its connection.
func (f *fleet) dial(ctx context.Context, h *v1alpha1.Host) error {
	dial := f.of.app.Dial
	if dial == nil {
		dial = f.dialSSH
	}
	conn, err := dial(ctx, h, f.of.knownHosts())
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of.Debug {
		conn = &logged{conn, h.Name, f.of.log}
	}
	f.hosts[h.Name] = runner.New(h.Name, conn)
	return nil
}

// hangUp lets go of the hosts' locks and ends all connections.
func (f *fleet) hangUp() {
	if f.unlock != nil {
		f.unlock()
	}
	for _, h := range f.hosts {
		_ = h.Close() // nothing is owed to a connection that is given up
	}
	for _, dial := range f.bastions { // all were dialled
		if c, err := dial(); err == nil {
			_ = c.Close()
		}
	}
}

// roundTrips returns how often each host was asked something.
func (f *fleet) roundTrips() map[string]int64 {
	trips := map[string]int64{}
	for name, h := range f.hosts {
		if name != plan.API { // its connections are those of masters
			trips[name] = h.RoundTrips()
		}
	}
	return trips
}

// tellMissing names the hosts that do not answer yet.
func (f *fleet) tellMissing() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var missing []string
	for _, h := range f.of.machines() {
		if f.hosts[h.Name] == nil {
			missing = append(missing, h.Name)
		}
	}
	f.of.notice("still waiting for an answer from %s", human.Names(missing, 10))
}

// patience is how long a host may take to tell its facts: one whose disk hangs
// must not hold back a run for ever.
const patience = time.Minute

// gather reads the facts of all hosts that are connected.
func (f *fleet) gather(ctx context.Context) (facts map[string]*runner.Facts, failed []*HostError) {
	facts = map[string]*runner.Facts{}
	failed = f.eachConnected(ctx, patience, func(ctx context.Context, r *runner.Runner) error {
		hosts := f.of.machines()
		h := hosts[slices.IndexFunc(hosts, func(h *v1alpha1.Host) bool { return h.Name == r.Host })]
		is, err := r.Facts(ctx, cluster.DataDirs(&f.of.config.Spec, h)...)
		if err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		facts[h.Name] = is
		return nil
	})
	return facts, failed
}

// eachConnected calls ask for all hosts that are connected at once, and returns those that failed, or did not answer in
// a time. A connection that is lost is recreated, once.
func (f *fleet) eachConnected(ctx context.Context, most time.Duration, ask func(context.Context, *runner.Runner) error) []*HostError {
	return f.each(func(h *v1alpha1.Host) error {
		f.mu.Lock()
		r := f.hosts[h.Name]
		f.mu.Unlock()
		if r == nil {
			return nil
		}
		ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no answer in %s", most))
		defer cancel()
		err := ask(ctx, r)
		if fault.IsTransient(err) {
			err = ask(ctx, r)
		}
		return err
	})
}

// each calls ask for all hosts at once and returns those that failed, in their order.
func (f *fleet) each(ask func(h *v1alpha1.Host) error) []*HostError {
	var group errgroup.Group
	hosts := f.of.machines()
	errs := make([]*HostError, len(hosts))
	group.SetLimit(connecting)
	for i, h := range hosts {
		group.Go(func() error {
			caught := func() (err error) { defer fault.Caught(&err); return ask(h) }
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
func (s *site) leaveOut(failed []*HostError) (needed []*HostError, err error) {
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
func (s *site) checkMissing() error {
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
	return s.followable(missing)
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

func (f *fleet) dialSSH(ctx context.Context, h *v1alpha1.Host, knownHosts string) (connector.Connector, error) {
	conf, err := f.sshTo(ctx, h, knownHosts)
	if err != nil {
		return nil, err
	}
	return connector.SSH(ctx, conf)
}

// sshTo is how to reach a host, by its bastion if it has one.
func (f *fleet) sshTo(ctx context.Context, h *v1alpha1.Host, knownHosts string) (conf connector.SSHConfig, err error) {
	conf = f.toHost(h, knownHosts)
	if h.Bastion != nil {
		conf.Bastion, err = f.bastion(ctx, f.toBastion(h, knownHosts))
	}
	return conf, err
}

// toHost is how to reach a host, but for its bastion.
func (f *fleet) toHost(h *v1alpha1.Host, knownHosts string) connector.SSHConfig {
	conf := f.ssh(h.Name, h.Address, h.HostKey, h.Credentials, h.Connection, knownHosts)
	conf.SudoPassword = h.SudoPassword
	return conf
}

// toBastion is how to reach the bastion of a host.
func (f *fleet) toBastion(h *v1alpha1.Host, knownHosts string) connector.SSHConfig {
	return f.ssh("bastion "+h.Bastion.Address, h.Bastion.Address, h.Bastion.HostKey, h.Bastion.Credentials, h.Connection, knownHosts)
}

// bastion connects to a bastion once for all hosts behind it.
func (f *fleet) bastion(ctx context.Context, conf connector.SSHConfig) (connector.Connector, error) {
	f.mu.Lock()
	dial := f.bastions[conf]
	if dial == nil {
		dial = sync.OnceValues(func() (connector.Connector, error) { return connector.SSH(ctx, conf) })
		f.bastions[conf] = dial
	}
	f.mu.Unlock()
	return dial()
}

func (f *fleet) ssh(name, address, hostKey string, c v1alpha1.Credentials, network v1alpha1.Connection, knownHosts string) connector.SSHConfig {
	return connector.SSHConfig{
		Name: name, Address: address, Port: c.Port, User: c.User, Password: c.Password,
		PrivateKeyPath: c.PrivateKeyPath, Passphrase: c.Passphrase, KnownHosts: knownHosts,
		HostKey: hostKey, Strict: f.of.hostKeys(network) != acceptNew,
		ConnectTimeout: network.Timeouts.Connect.Duration, KeepAlive: network.Timeouts.KeepAlive.Duration,
	}
}

func joinLines(ls []string) string { return strings.Join(ls, "\n  ") }
