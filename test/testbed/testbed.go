package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/kubexm/kubexm/test/testbed/build"
)

// Password opens every account that has one: root and kube.
const Password = "testbed-Pa55"

// DefaultName is the testbed that is meant when nobody names one.
const DefaultName = "kx"

// A Testbed is a set of nodes on one bridge. Several can run side by side on
// one machine under different names; everything that belongs to one is found
// again by its name: directories, interfaces, namespaces, cgroups and chains.
type Testbed struct {
	Name  string      // of the testbed: a letter, then up to four letters or digits
	Dir   string      // what this testbed keeps on disk
	Cache build.Cache // base file systems, built components, images; shared by all testbeds
	Out   io.Writer   // progress, one line per fact

	network int // second octet of 10.x.0.0/24
}

// A Node is one machine.
type Node struct {
	Name    string `json:"name"`             // node1, node2...
	Index   int    `json:"index"`            // 1, 2...
	Address string `json:"address"`          // IPv4, or IPv6 where the testbed has nothing else
	Second  string `json:"second,omitempty"` // IPv6, where it has both
	OS      string `json:"os"`               // debian12 or debian13
	Base    string `json:"base"`             // root file system below its own changes
}

// settings are what `up` was asked for and other commands need.
type settings struct {
	User   string `json:"user"`
	Family string `json:"family,omitempty"` // empty: ipv4
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9]{0,4}$`)

// Open returns the testbed of that name; an empty name means $KUBEXM_TESTBED,
// or DefaultName. Nothing is made on disk yet. The state lies below
// $KUBEXM_TESTBED_STATE (default /var/lib/kubexm-testbed).
func Open(name string, out io.Writer) (*Testbed, error) {
	if name == "" {
		name = os.Getenv("KUBEXM_TESTBED")
	}
	if name == "" {
		name = DefaultName
	}
	if !nameForm.MatchString(name) {
		return nil, fmt.Errorf("testbed name %q: want a small letter, then at most four small letters or digits", name)
	}
	cache, err := build.DefaultCache()
	if err != nil {
		return nil, err
	}
	return &Testbed{Name: name, Dir: filepath.Join(stateRoot(), name), Cache: cache, Out: out, network: network(name)}, nil
}

func stateRoot() string {
	if dir := os.Getenv("KUBEXM_TESTBED_STATE"); dir != "" {
		return dir
	}
	return "/var/lib/kubexm-testbed"
}

// network gives each name a network of its own: 77 for the default name, 78
// to 127 for the others.
func network(name string) int {
	if name == DefaultName {
		return 77
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	return 78 + int(h.Sum32()%50)
}

// Gateway is the address of the machine itself on the nodes' network.
func (t *Testbed) Gateway() string { return t.addresses(1)[0] }

// VIP is an address of the nodes' network for load balancers to share.
func (t *Testbed) VIP() string { return t.addresses(100)[0] }

// SecondVIP is another one.
func (t *Testbed) SecondVIP() string { return t.addresses(101)[0] }

// Subnet is the nodes' IPv4 network.
func (t *Testbed) Subnet() string { return fmt.Sprintf("10.%d.0.0/24", t.network) }

// KeyFile is the private key that every account of every node accepts.
func (t *Testbed) KeyFile() string { return filepath.Join(t.Dir, "ssh", "id_ed25519") }

// KnownHosts holds the host keys of all nodes.
func (t *Testbed) KnownHosts() string { return filepath.Join(t.Dir, "ssh", "known_hosts") }

// User is the account that `up` was asked to use.
func (t *Testbed) User() string { return t.settings().User }

func (t *Testbed) settings() settings {
	s := settings{User: "root"}
	if b, err := os.ReadFile(filepath.Join(t.Dir, "settings.json")); err == nil && json.Unmarshal(b, &s) != nil {
		return settings{User: "root"}
	}
	return s
}

func (t *Testbed) bridge() string { return t.Name + "br0" }
func (t *Testbed) nodes() string  { return filepath.Join(t.Dir, "nodes") }

func (t *Testbed) logf(format string, args ...any) { fmt.Fprintf(t.Out, format+"\n", args...) }

// own is the name under which the kernel knows what belongs to a node:
// its namespace, its interface, its cgroups, its container.
func (t *Testbed) own(node string) string { return t.Name + "-" + node }

func (t *Testbed) dir(node string, parts ...string) string {
	return filepath.Join(append([]string{t.nodes(), node}, parts...)...)
}

// Nodes lists the nodes that exist, running or not, in order.
func (t *Testbed) Nodes() ([]Node, error) {
	entries, err := os.ReadDir(t.nodes())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the nodes: %w", err)
	}
	var nodes []Node
	for _, e := range entries {
		b, err := os.ReadFile(t.dir(e.Name(), "node.json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // half made: only `down` cares
		}
		var n Node
		if err == nil {
			err = json.Unmarshal(b, &n)
		}
		if err != nil {
			return nil, fmt.Errorf("reading about node %s: %w", e.Name(), err)
		}
		nodes = append(nodes, n)
	}
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].Index < nodes[j].Index })
	return nodes, nil
}

// Node returns one node by name.
func (t *Testbed) Node(name string) (Node, error) {
	nodes, err := t.Nodes()
	if err != nil {
		return Node{}, err
	}
	var names []string
	for _, n := range nodes {
		if n.Name == name {
			return n, nil
		}
		names = append(names, n.Name)
	}
	return Node{}, fmt.Errorf("testbed %s has no node %q; it has: %s", t.Name, name, strings.Join(names, " "))
}

// node describes the i-th node.
func (t *Testbed) node(i int, os, base string) Node {
	return Node{Name: "node" + strconv.Itoa(i), Index: i, OS: os, Base: base}.at(t.addresses(10 + i))
}

// Running reports whether the node's container lives.
func (t *Testbed) Running(n Node) bool { return len(t.processes(n.Name)) > 0 }

// State says in a word or two how a node is: off, running, or running with a poor network.
func (t *Testbed) State(n Node) string {
	_, far := net.InterfaceByName(t.tap(n.Name))
	switch link, err := net.InterfaceByName(t.own(n.Name)); {
	case !t.Running(n):
		return "off"
	case err != nil || link.Flags&net.FlagUp == 0:
		return "running, network cut"
	case far == nil:
		return "running, network slow"
	}
	return "running"
}

// waitFor polls a local condition with growing pauses until it holds.
func waitFor(ctx context.Context, what string, ok func() bool) error {
	for pause := newBackoff(); !ok(); {
		if err := pause(ctx); err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
	}
	return nil
}

// newBackoff returns a pause that grows from 20 to 500 ms.
func newBackoff() func(context.Context) error {
	d := 20 * time.Millisecond
	return func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		d = min(2*d, 500*time.Millisecond)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		}
	}
}

// gone reports whether err says that a file is not there.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
