package app

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/observe"
	"github.com/kubexm/kubexm/pkg/task"
)

// ClusterStatus is how a cluster is.
type ClusterStatus struct {
	Cluster      string               `json:"cluster"`
	Healthy      bool                 `json:"healthy"`
	Kubernetes   string               `json:"kubernetes"`       // version, as configured
	Type         string               `json:"type"`             // kubeadm or kubexm
	Server       string               `json:"server,omitempty"` // version of the API server that was asked
	Endpoint     string               `json:"endpoint"`
	Nodes        []Node               `json:"nodes"`
	ControlPlane []cluster.Component  `json:"controlPlane,omitempty"`
	Etcd         []cluster.EtcdMember `json:"etcd,omitempty"` // members of the etcd that kubexm keeps
	Addons       []cluster.Addon      `json:"addons,omitempty"`
	Certificate  *cluster.Certificate `json:"certificate,omitempty"` // the one on the hosts that expires first
	LastRun      *store.Run           `json:"lastRun,omitempty"`
	Checks       []observe.Check      `json:"checks,omitempty"`   // where asked for: whether everything names the hosts that the cluster has
	Problems     []string             `json:"problems,omitempty"` // what is not as it should be
}

// Node is a host of the configuration, or another node that the cluster has.
type Node struct {
	Name    string   `json:"name"`
	Status  string   `json:"status"` // Ready, NotReady, Unknown as Kubernetes has it; not a node; unreachable
	Roles   []string `json:"roles,omitempty"`
	Version string   `json:"version,omitempty"` // of the kubelet
	Address string   `json:"address,omitempty"`
	OS      string   `json:"os,omitempty"`
	Runtime string   `json:"runtime,omitempty"`
}

// Status looks how a cluster is. What cannot be asked is told as a problem; an
// error means that nothing is known at all. Nothing is changed, and no lock is
// taken: it answers during a run, too.
func (a *App) Status(ctx context.Context, r Request, o Observer) (*ClusterStatus, error) {
	v, err := a.visit(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer v.close()
	c, w, failed := v.cluster, v.work, v.failed
	c.Observed = observe.Look(ctx, c, v.fleet.hosts, failed)
	is := statusOf(c, failed)
	is.Problems = append(is.Problems, w.failedJobs(ctx)...)
	last, err := w.records.run("")
	if err != nil {
		is.Problems = append(is.Problems, err.Error())
	} else {
		is.LastRun = &last
	}
	slices.Sort(is.Problems)
	if r.Verify {
		moving, err1 := w.moving()
		if err := errors.Join(err1, w.knowMachines(nil)); err != nil {
			return nil, err
		}
		c.Fenced = w.fenced(w.known)
		is.Checks = observe.Verify(ctx, c, c.Observed, v.fleet.hosts, failed, observe.Wanted{ClusterConfiguration: task.KubeadmConfiguration(c), Moving: moving})
	}
	is.Healthy = len(is.Problems) == 0 && !slices.ContainsFunc(is.Checks, func(c observe.Check) bool { return c.Result != observe.OK })
	return is, nil
}

// visit is a look at a cluster that was made, with connections to those of its hosts that can be reached. Nothing is changed, and no lock is taken.
type visit struct {
	*work
	fleet   *fleet
	cluster *cluster.Cluster
	failed  map[string]error // by host: why it was not reached
}

func (v *visit) close() {
	v.fleet.hangUp()
	v.work.close()
}

func (a *App) visit(ctx context.Context, r Request, o Observer) (*visit, error) {
	s, err := a.open(ctx, r, o)
	if err != nil {
		return nil, err
	}
	w, err := s.made()
	if err != nil {
		return nil, err
	}
	v := &visit{work: w, failed: map[string]error{}}
	var unreached []*HostError
	v.fleet, unreached = s.dialAll(ctx)
	for _, e := range unreached {
		v.failed[e.Host] = e.Err
	}
	if ctx.Err() != nil {
		v.close()
		return nil, ctx.Err()
	}
	v.cluster = cluster.New(s.config, s.dir, nil, nil)
	v.cluster.Certs.Existing = true
	return v, nil
}

// statusOf is a view of what was observed.
func statusOf(c *cluster.Cluster, failed map[string]error) *ClusterStatus {
	o := c.Observed
	is := &ClusterStatus{
		Cluster: c.Name, Kubernetes: c.Spec.Kubernetes.Version, Type: c.Spec.Kubernetes.Type, Server: o.Server, Endpoint: c.Endpoint(),
		ControlPlane: o.Components, Etcd: o.Members, Addons: o.Addons, Problems: o.Problems,
	}
	if i := slices.IndexFunc(o.Certificates, func(c cluster.Certificate) bool { return !c.Rotates() }); i >= 0 {
		is.Certificate = &o.Certificates[i]
	}
	names := slices.DeleteFunc(c.All(), func(h string) bool { return !c.IsNode(h) })
	for _, name := range append(names, slices.Sorted(maps.Keys(o.Nodes))...) {
		if !slices.ContainsFunc(is.Nodes, func(n Node) bool { return n.Name == name }) {
			is.Nodes = append(is.Nodes, nodeOf(c, name, failed[name] != nil))
		}
	}
	return is
}

// nodeOf is what is known of a node, which may be no host.
func nodeOf(c *cluster.Cluster, name string, unreachable bool) Node {
	node := Node{Name: name}
	if h := c.Host(name); h != nil {
		node.Address = h.InternalAddress
		for _, r := range h.Roles {
			node.Roles = append(node.Roles, string(r))
		}
	}
	seen, joined := c.Observed.Nodes[name]
	switch {
	case joined:
		node.Status, node.Version, node.OS, node.Runtime = seen.Status(), seen.Version, seen.OS, seen.Runtime
		if len(seen.Addresses) > 0 {
			node.Address = seen.Addresses[0]
		}
		if unreachable {
			node.Status += ", unreachable"
		}
		if seen.Cordoned {
			node.Status += ", cordoned"
		}
	case unreachable:
		node.Status = "unreachable"
	case c.Observed.Nodes == nil:
		node.Status = "unknown"
	default:
		node.Status = "not a node"
	}
	return node
}
