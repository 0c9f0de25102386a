// Package store keeps what kubexm has to remember of a cluster between two commands: its runs with their plans and
// events, the configurations that were applied, what is known of its hosts, and who works on it.
package store

import (
	"io"
	"time"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
)

// Store is the memory of one cluster. Several processes may use it at once; each method is one transaction.
// What a method that writes has returned without an error survives a power cut.
type Store interface {
	Runs
	Revisions
	Hosts
	Leases
	// Copy writes all of it, as it is at one moment, to a file that is empty or not there, in the format of File.
	Copy(path string) error
	io.Closer
}

// Runs is the history of a cluster.
type Runs interface {
	// Begin records that a run begins, with its plan; where rev is not nil, the run applies that configuration from now
	// on. It returns the run with its Seq, and with another ID where that one is taken.
	Begin(run Run, graph *plan.ExecutionGraph, rev *Revision) (Run, error)
	// End records how a run ended.
	End(run Run) error
	// Append adds events to a run, in order.
	Append(run Run, events []engine.Event) error
	// Runs lists the runs in the order in which they began.
	Runs() ([]Run, error)
	// Graph returns the plan of a run.
	Graph(run Run) (*plan.ExecutionGraph, error)
	// Events calls each for the events of a run that have a number above after, in order, until it returns an error.
	// The number of an event is its Seq where it has one.
	Events(run Run, after int64, each func(number int64, ev engine.Event) error) error
}

// Revisions are the configurations that were applied.
type Revisions interface {
	// Applied returns the configuration that the cluster was last made with; nil where there is no cluster.
	Applied() (*Revision, error)
	// History lists all configurations that were applied, oldest first.
	History() ([]Revision, error)
	// Forget notes that the cluster is gone: nothing is applied, nothing is known of hosts.
	// The history stays, without the secrets that it held.
	Forget() error
}

// Hosts is what is known of hosts.
type Hosts interface {
	// Facts returns what was last seen of each host.
	Facts() (map[string]*runner.Facts, error)
	// KeepFacts replaces what is known of the hosts that are given; of those with nil nothing is.
	KeepFacts(facts map[string]*runner.Facts) error
	// Inventory returns by host what it owes to kubexm, in the words of the ledger.
	Inventory() (map[string][]string, error)
	// KeepInventory replaces the inventory of a host; an empty one is removed.
	KeepInventory(host string, items []string) error
	// Departed returns the hosts that the configuration has no more and that were not cleaned yet, by name; and machines that were given up, by other notes.
	Departed() (map[string]Departed, error)
	// KeepDeparted replaces what is known of a host that the configuration has no more; nil: it is none of the cluster's any more, or again one that it
	// has.
	KeepDeparted(host string, d *Departed) error
	// Built lists the directories that builds have written.
	Built() ([]string, error)
	// KeepBuilt replaces that list.
	KeepBuilt(dirs []string) error
}

// Leases say who works on what.
type Leases interface {
	// Lease takes or renews a lease for as long as ttl. A *HeldError tells of another holder whose time is not over.
	// With no ttl it only tells who holds what is guarded by other means.
	Lease(name, holder string, ttl time.Duration) error
	// Holder returns who took a lease last and did not give it back; nil: nobody.
	Holder(name string) (*Held, error)
	// Release gives a lease back, if it is the holder's.
	Release(name, holder string) error
}

// Run is the record of one run.
type Run struct {
	Seq      int64          `json:"seq"` // order of runs, which clocks do not tell
	ID       string         `json:"id"`
	Cluster  string         `json:"cluster"`
	Pipeline string         `json:"pipeline"`
	Started  time.Time      `json:"started"`
	Ended    *time.Time     `json:"ended,omitempty"`   // nil: running, or cut off
	Result   string         `json:"result,omitempty"`  // ok, failed, interrupted; not in the record: running, cut off
	Missing  []string       `json:"missing,omitempty"` // hosts that could not be reached and were left out
	Partial  bool           `json:"partial,omitempty"` // nodes may have kept their kubelets: the release is one on the way to another, or back, or only some were to get theirs
	Summary  engine.Summary `json:"summary"`
	Error    string         `json:"error,omitempty"`
}

// Revision is a configuration that a run applied.
type Revision struct {
	Run      Run    `json:"run"`
	Given    []byte `json:"-"` // text of the file; nil: it was secret, and the cluster has another configuration by now
	Secret   bool   `json:"-"` // Given holds secrets
	Resolved []byte `json:"-"` // with all defaults, without secrets; empty: lost by an older version
}

// Departed is a host that the configuration has no more.
type Departed struct {
	Given     []byte    `json:"given"`               // text of the last configuration that had it: how to log in there
	Lost      bool      `json:"lost,omitempty"`      // it was given up without being reached; nobody waits for it
	Gone      bool      `json:"gone,omitempty"`      // it was not there when it was to leave: others may have begun to forget it
	MachineID string    `json:"machineID,omitempty"` // by which it is known should it come back
	Since     time.Time `json:"since"`
}

// Held is a lease that somebody has.
type Held struct {
	Name, Holder string
	Since, Until time.Time
}

func (h Held) String() string {
	return h.Holder + ", since " + h.Since.Local().Format(time.DateTime) //nolint:gosmopolitan // for people on this machine
}

// HeldError is a lease that somebody else has.
type HeldError struct{ Held }

func (e *HeldError) Error() string { return "held by " + e.String() }

// stamp is the form of the time that the name of a run begins with.
const stamp = "20060102T150405.000Z"

// ID is the name of a run of a pipeline that began at a time.
func ID(began time.Time, pipeline string) string { return began.UTC().Format(stamp) + "-" + pipeline }
