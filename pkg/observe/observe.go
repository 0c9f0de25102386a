// Package observe looks how a cluster is: its members of etcd, API servers, nodes, certificates. It asks side by
// side, through the connections to the hosts, and waits for no answer longer than a few seconds, so that machines
// that are dead do not add up. It changes nothing.
package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/human"
)

const (
	patience = 5 * time.Second // for one question
	parallel = 64              // questions at a time
)

// look is one look at a cluster.
type look struct {
	*cluster.Cluster
	hosts     map[string]*runner.Runner
	unreached map[string]error

	mu sync.Mutex // guards is
	is cluster.Observed
}

// Look asks all of a cluster that was made how it is. hosts are those that are connected; unreached says of
// the others why they are not. What cannot be found out is a problem.
func Look(ctx context.Context, c *cluster.Cluster, hosts map[string]*runner.Runner, unreached map[string]error) cluster.Observed {
	l := &look{Cluster: c, hosts: hosts, unreached: unreached}
	l.is.Endpoint = map[string]string{}
	var group, servers errgroup.Group
	group.SetLimit(parallel)
	for _, h := range c.All() {
		if err := unreached[h]; err != nil {
			l.problem("host %s: %v", h, err)
		}
		if r := hosts[h]; r != nil {
			if l.Host(h).Is(v1alpha1.RoleMaster) {
				servers.Go(func() error { l.apiServer(ctx, r); return nil })
			}
			for _, ask := range l.questions(h) {
				group.Go(func() error { ask(ctx, r); return nil })
			}
		}
	}
	group.Go(func() error { _ = servers.Wait(); l.objects(ctx, l.list); return nil })
	if !c.ExternalEtcd() {
		group.Go(func() error { l.etcd(ctx); return nil })
	}
	_ = group.Wait() // what fails is a problem
	l.due()
	return l.sorted()
}

// ControlPlane asks only members of etcd and API servers how they are, and for the nodes.
func ControlPlane(ctx context.Context, c *cluster.Cluster, hosts map[string]*runner.Runner) cluster.Observed {
	l := &look{Cluster: c, hosts: hosts}
	var group, servers errgroup.Group
	for _, h := range append(c.Masters(), c.FormerMasters()...) {
		if r := hosts[h]; r != nil {
			servers.Go(func() error { l.apiServer(ctx, r); return nil })
		}
	}
	group.Go(func() error { _ = servers.Wait(); l.objects(ctx, l.nodes); return nil })
	if !c.ExternalEtcd() {
		group.Go(func() error { l.etcd(ctx); return nil })
	}
	_ = group.Wait() // what fails is a problem
	return l.sorted()
}

type question func(context.Context, *runner.Runner)

// questions are those to a host, but for its API server.
func (l *look) questions(host string) (all []question) {
	is := l.Host(host).Is
	if is(v1alpha1.RoleMaster) {
		all = append(all, controller(l, "kube-controller-manager", "https://127.0.0.1:10257/healthz"),
			controller(l, "kube-scheduler", "https://127.0.0.1:10259/healthz"))
	}
	if l.Balances(l.Host(host)) {
		all = append(all, l.loadBalancer)
	}
	if is(v1alpha1.RoleWorker) && l.Balancer() != "" {
		all = append(all, l.endpoint)
	}
	if is(v1alpha1.RoleRegistry) {
		all = append(all, l.registry)
	}
	if is(v1alpha1.RoleEtcd) {
		for _, name := range l.EtcdTimers() {
			all = append(all, timer(l, name))
		}
	}
	if slices.Contains(l.ControlPlaneHosts(), host) || l.IsNode(host) {
		all = append(all, l.certificates)
	}
	return all
}

func (l *look) problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.is.Problems = append(l.is.Problems, human.Clean(fmt.Sprintf(format, args...)))
}

// component adds a component, healthy where err is nil.
func (l *look) component(host, name, version string, err error) {
	c := cluster.Component{Host: host, Name: name, Healthy: err == nil, Version: version}
	if err != nil {
		c.Message = human.Clean(err.Error())
		l.problem("%s on %s: %v", name, host, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.is.Components = append(l.is.Components, c)
}

// client calls an API server from where the host is.
func (l *look) client(r *runner.Runner, access func() kube.Access) (*kube.Client, error) {
	if _, err := l.Certs.CA(pki.Kubernetes); err != nil {
		return nil, err // which says more than that access has no authority
	}
	a := access()
	a.Dial, a.Patience = r.Dial, patience
	return kube.New(a)
}

// sorted puts in order what came in any.
func (l *look) sorted() cluster.Observed {
	is, order := &l.is, l.All()
	place := func(host string) int { // those of no host come last
		if i := slices.Index(order, host); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(is.Components, func(a, b cluster.Component) int {
		return cmp.Or(cmp.Compare(place(a.Host), place(b.Host)), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(is.API, func(a, b cluster.APIServer) int { return cmp.Compare(place(a.Host), place(b.Host)) })
	slices.SortStableFunc(is.Members, func(a, b cluster.EtcdMember) int { return cmp.Compare(place(a.Host), place(b.Host)) })
	slices.SortFunc(is.Certificates, func(a, b cluster.Certificate) int {
		return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(place(a.Host), place(b.Host)), strings.Compare(a.Path, b.Path))
	})
	slices.Sort(is.Problems)
	return *is
}
