package app

import (
	"context"
	"errors"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pipeline"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// defragPipe is the pipeline that defragments etcd.
const defragPipe = "defragment-etcd"

// Etcd is the etcd of a cluster.
type Etcd struct {
	Cluster  string               `json:"cluster"`
	Members  []cluster.EtcdMember `json:"members"`
	Problems []string             `json:"problems,omitempty"` // what is wrong with it, and what could not be found out
}

// Etcd asks all members of etcd how they are. Nothing is changed.
func (a *App) Etcd(ctx context.Context, r Request, o Observer) (*Etcd, error) {
	s, err := a.open(ctx, r, o)
	if err != nil {
		return nil, err
	}
	w, err := s.made()
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.ownEtcd(); err != nil {
		return nil, err
	}
	is, failed, err := w.reach(ctx, false, v1alpha1.Source{Offline: true})
	if err != nil {
		return nil, errors.Join(joined(failed), err)
	}
	is.observe(ctx)
	e := &Etcd{Cluster: is.config.Metadata.Name, Members: is.cluster.Observed.Members}
	for _, f := range failed {
		if h := is.cluster.Host(f.Host); h != nil && h.Is(v1alpha1.RoleEtcd) {
			e.Problems = append(e.Problems, f.Error())
		}
	}
	for _, m := range e.Members {
		if m.Err != "" {
			e.Problems = append(e.Problems, "etcd on "+m.Host+": "+m.Err)
		}
	}
	return e, nil
}

// Defragment gives space that etcd has freed back to the disks, one member after the other. Where etcd takes no writes for lack of space, it does again afterwards.
func (a *App) Defragment(ctx context.Context, r Request, o Observer) (*Result, error) {
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.ownEtcd(); err != nil {
		return nil, err
	}
	s, err := w.living(ctx, defragPipe)
	if err != nil {
		return nil, err
	}
	graph, err := planned(s.cluster, pipeline.Defragment)
	if err != nil {
		return nil, err
	}
	return s.run(ctx, defragPipe, graph)
}

// ownEtcd refuses what is up to whoever runs an etcd that is not the cluster's.
func (w *work) ownEtcd() error {
	if w.config.Spec.Etcd.Type != v1alpha1.TypeExternal {
		return nil
	}
	return fault.Exit(fault.Advise(errors.New("etcd is external: kubexm does not look after it"), "use etcdctl, with the certificates of spec.etcd.external"), fault.ExitUsage)
}
