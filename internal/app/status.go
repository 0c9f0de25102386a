package app

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/cluster"
)

// ClusterStatus is how a cluster is.
type ClusterStatus struct {
	Cluster      string      `json:"cluster"`
	Healthy      bool        `json:"healthy"`
	Kubernetes   string      `json:"kubernetes"`       // version, as configured
	Type         string      `json:"type"`             // kubeadm or kubexm
	Server       string      `json:"server,omitempty"` // version of the API server that was asked
	Endpoint     string      `json:"endpoint"`
	Nodes        []Node      `json:"nodes"`
	ControlPlane []Component `json:"controlPlane,omitempty"`
	Addons       []Addon     `json:"addons,omitempty"`
	Certificate  *Expiry     `json:"certificate,omitempty"` // the one on the hosts that expires first
	LastRun      *store.Run  `json:"lastRun,omitempty"`
	Problems     []string    `json:"problems,omitempty"` // what is not as it should be
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

// Component is a program of the control plane on a host.
type Component struct {
	Host    string `json:"host"`
	Name    string `json:"name"`
	Healthy bool   `json:"healthy"`
	Message string `json:"message,omitempty"` // what it, or the way to it, says that is wrong
}

// Addon is a workload in one of the system's namespaces.
type Addon struct {
	Name   string `json:"name"` // namespace/name
	Ready  int    `json:"ready"`
	Wanted int    `json:"wanted"`
}

// Expiry is when a certificate on a host expires.
type Expiry struct {
	Host    string    `json:"host"`
	Path    string    `json:"path"`
	Expires time.Time `json:"expires"`
}

// checkMade refuses to look at a cluster that was not made.
func (s *session) checkMade() error {
	err := s.remember(false)
	var applied *store.Revision
	if err == nil {
		applied, err = s.records.Applied()
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && applied == nil {
		return s.noCluster(s.config.Metadata.Name)
	}
	return err
}

// Status looks how a cluster is. What cannot be asked is told as a problem; an
// error means that nothing is known at all. Nothing is changed, and no lock is
// taken: it answers during a run, too.
func Status(ctx context.Context, o Options) (*ClusterStatus, error) {
	s, err := open(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.checkMade(); err != nil {
		return nil, err
	}
	failed := map[string]error{}
	for _, e := range s.dialAll(ctx) {
		failed[e.Host] = e.Err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.cluster = cluster.New(s.config, s.dir, nil, nil)
	s.cluster.Certs.Existing = true
	p := &probe{session: s, st: &ClusterStatus{
		Cluster: s.config.Metadata.Name, Kubernetes: s.config.Spec.Kubernetes.Version, Type: s.config.Spec.Kubernetes.Type, Endpoint: s.cluster.Endpoint(),
	}}
	p.all(ctx, failed)
	last, err := (&past{s.records, s.dir, s.config.Metadata.Name, s.Options}).run("")
	if err != nil {
		p.problem("%v", err)
	} else {
		p.st.LastRun = &last
	}
	slices.Sort(p.st.Problems)
	p.st.Healthy = len(p.st.Problems) == 0
	return p.st, nil
}
