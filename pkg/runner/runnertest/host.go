// Package runnertest provides a Linux host in memory for tests. It is a
// connector.Connector that interprets the very shell scripts that kubexm sends
// to real hosts: on a file system, a systemd, a package manager and a kernel
// that exist only in memory. A command that it does not know fails loudly.
package runnertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Host is a host in memory. Debian12 and Rocky9 make one. Its methods may be
// called at any time; its fields may be set while no script runs.
type Host struct {
	Name     string
	Commands map[string]Command                 // what the system brings; nil: known, but not installed here
	Programs map[string]Command                 // what files of these names do, once they are in place and may be run
	OnStart  map[string]func(*Host) error       // what a unit ("kubelet.service") or a static pod ("pod etcd") does when it starts; an error: it fails
	OnReload map[string]func(*Host) error       // what it does when it reads its files again; an error: it goes on as before
	OnStop   map[string]func(*Host)             // what it does when it stops
	OnDown   func()                             // called when the host has stopped to start again; nil: nobody
	Repo     map[string]Package                 // packages that can be installed
	Newer    map[string]Package                 // those of them that repositories have in another version
	Offline  bool                               // package repositories cannot be reached
	Deny     func(script string) error          // asked before each script; an error is its end
	Kill     *Kill                              // of kubexm; counts scripts
	Cut      *Kill                              // of power; counts the commands inside scripts, and ends them at once
	Told     func(line string)                  // told of each line of the Log as it is written, and of units that fail; must not use the host; nil: nobody
	Loud     func(script string, args []string) // told of each command that the fake does not know; nil: nobody

	InitConfig func() string // the configuration of the kubeadm init that made the cluster; nil: there is none

	Manager      string          // apt, dnf or yum
	Systemd      int             // version
	Kernel       string          // uname -r
	Machine      string          // uname -m
	Modules      map[string]bool // kernel modules that there are; true: built in
	CPUs         int
	MemoryMiB    int
	Skew         time.Duration // how far its clock is ahead
	DiskMiB      int
	BootTime     time.Duration     // how long it takes to start again; 0: 20 s, negative: it does not
	Blocked      map[string]string // address:port of other hosts -> what bash says when it connects there; empty: no answer comes
	NoForwarding bool              // its sshd opens no ports for who logs in

	fs      *fsys
	down    atomic.Bool
	started atomic.Int32 // of plugin.Runtimes
	execs   atomic.Int64
	systemd sync.Mutex // held by each systemctl, but not while hooks run
	kubelet sync.Mutex // held while static pods are looked after
	tended  bool       // there is a kubelet that looks after them; guarded by kubelet

	mu       sync.Mutex // guards Commands and what follows
	log      []string
	units    map[string]*unit
	journal  map[string][]string // unit -> log lines
	packages map[string]bool
	versions map[string]string  // of packages that were upgraded
	news     map[string]Package // that the package manager knows to be upgradable
	boots    int
	restarts int
	lists    bool // apt has package lists
	listen   map[int]string
	to       []string // what is connected to
	lastPID  int
	forked   map[int]func() // processes that are systemd still, and what makes them the program
	loaded   []string       // kernel modules
	swaps    []string
	mounts   [][3]string // what, where, type
	pods     map[string]bool
	static   map[string]staticPod
	addrs    map[string]string   // interface, or label -> address in CIDR form
	routes   map[string]string   // that were added: where to -> protocol
	rules    map[string][]string // packet filter: table -> rules
	services map[string]func() (net.Conn, error)
}

// ErrLost is what a command gives whose connection is lost, with what package connector advises then.
var ErrLost = fault.Advise(errors.New("connection lost"), "check that the machine is up and the network to it is steady")

// Kill is an end that comes at a chosen moment. As Host.Kill it ends kubexm: the
// script that runs then goes on with what input it has, but its answer is lost,
// and later ones do not reach the host. As Host.Cut it ends the host, in the
// middle of a script. Hosts may share one. The zero value only counts.
type Kill struct {
	After int64  // how many still run undisturbed; 0: all
	Then  func() // called when it happens, such as the cancel of the run's context; may be nil
	n     atomic.Int64
}

func (k *Kill) hit() (now, past bool) {
	if k == nil {
		return false, false
	}
	n := k.n.Add(1)
	if k.After == 0 {
		return false, false
	}
	if n == k.After+1 && k.Then != nil {
		defer k.Then()
	}
	return n == k.After+1, n > k.After+1
}

// Count is how many were counted so far.
func (k *Kill) Count() int64 { return k.n.Load() }

// Execs counts the scripts that were sent to the host.
func (h *Host) Execs() int64 { return h.execs.Load() }

// SetDown cuts the host off, or brings it back: all commands and connections
// fail with a transient error.
func (h *Host) SetDown(down bool) { h.down.Store(down) }

// SetFull lets the file system have no space left, or again.
func (h *Host) SetFull(full bool) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	h.fs.full = full
}

// Fail lets each script that contains text end with err.
func (h *Host) Fail(text string, err error) {
	h.Deny = func(script string) error {
		if strings.Contains(script, text) {
			return err
		}
		return nil
	}
}

// Runner returns a new Runner on the host, as a new run of kubexm has it.
func (h *Host) Runner() *runner.Runner { return runner.New(h.Name, h) }

// Close does nothing: a host outlives its connections.
func (h *Host) Close() error { return nil }

// Exec interprets a shell script.
func (h *Host) Exec(ctx context.Context, c connector.Cmd) error {
	h.execs.Add(1)
	if err := ctx.Err(); err != nil {
		return err
	}
	now, past := h.Kill.hit()
	if past || h.down.Load() {
		return fault.Transient(fmt.Errorf("%s: %w", h.Name, ErrLost))
	}
	if h.Deny != nil {
		if err := h.Deny(c.Line); err != nil {
			return err
		}
	}
	if now {
		c.Stdin, c.Stdout = half(c.Stdin), nil
	}
	err := h.shell(ctx, c)
	h.passes()
	if now {
		return fault.Transient(fmt.Errorf("%s: %w", h.Name, ErrLost))
	}
	return err
}

// Serve lets dial answer connections from the host to an address; nil ends that.
func (h *Host) Serve(address string, dial func() (net.Conn, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.services[address] = dial
}

// Dial connects to what Serve has set for the address.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if h.down.Load() {
		return nil, fault.Transient(fmt.Errorf("%s: %w", h.Name, ErrLost))
	}
	h.mu.Lock()
	dial := h.services[address]
	h.mu.Unlock()
	if dial == nil {
		return nil, fault.Transient(fmt.Errorf("dial %s %s on %s: connection refused", network, address, h.Name))
	}
	return dial()
}

// Log returns what changed the host so far, one line for each change.
func (h *Host) Log() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.log...)
}

// ClearLog forgets the Log.
func (h *Host) ClearLog() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = nil
}

func (h *Host) changed(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logged(fmt.Sprintf(format, args...))
}

// logged adds a line to the log. The caller holds h.mu.
func (h *Host) logged(line string) {
	h.log = append(h.log, line)
	h.tell(line)
}

func (h *Host) tell(line string) {
	if h.Told != nil {
		h.Told(line)
	}
}
