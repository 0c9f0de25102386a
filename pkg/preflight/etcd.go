package preflight

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
)

// externalEtcd looks at an etcd that kubexm does not run from the masters that are not part of the cluster yet, and
// finds what would make them fail.
func externalEtcd(ctx context.Context, c *cluster.Cluster, hosts map[string]*runner.Runner) (found []Finding) {
	touched := c.Touched()
	masters := slices.DeleteFunc(c.Masters(), func(h string) bool { return slices.Contains(touched, h) || c.Facts[h] == nil })
	if !c.ExternalEtcd() || len(masters) == 0 {
		return nil
	}
	add := func(host, what, needed, fix string) {
		found = append(found, Finding{Host: host, Check: Etcd, Severity: SeverityError, Found: what, Needed: needed, Fix: fix})
	}
	conf, expired, err := c.EtcdClient().TLS()
	if err = errors.Join(err, expired); err != nil {
		add(plan.Control, err.Error(), "a client certificate that etcd accepts", "put a valid one in the files of spec.etcd.external")
		return found
	}
	wrong := make([]string, len(masters))
	var all sync.WaitGroup
	for i, h := range masters {
		all.Go(func() { wrong[i] = unfit(ctx, external(c, hosts[h], conf)) })
	}
	all.Wait()
	for i, h := range masters {
		if wrong[i] != "" {
			add(h, wrong[i], "all endpoints in good health, "+config.MinEtcd+" or newer, for this client",
				"look at etcd and its log; let the masters reach it; correct the endpoints and files of spec.etcd.external")
		}
	}
	if found != nil || len(masters) < len(c.Masters()) { // what is in there may be this cluster's
		return found
	}
	prefix := c.EtcdPrefix()
	switch key, err := firstKey(ctx, external(c, hosts[masters[0]], conf)[0], prefix); {
	case err != nil:
		add(masters[0], fmt.Sprintf("the keys of etcd below %s cannot be read: %v", prefix, err), "no objects of another cluster", "check with: etcdctl get --prefix --keys-only --limit 1 "+prefix)
		found[0].Severity = SeverityWarning
	case key != "":
		add(masters[0], fmt.Sprintf("etcd holds objects of another cluster, like %s", key), "no keys below "+prefix,
			"if that cluster is in use, use another etcd, or spec.kubernetes.apiServer.extraArgs.etcd-prefix; if it is gone: etcdctl del --prefix "+prefix)
	}
	return found
}

// external is how to reach the endpoints from a host.
func external(c *cluster.Cluster, r *runner.Runner, conf *tls.Config) (all []etcd.Access) {
	for _, e := range c.Spec.Etcd.External.Endpoints {
		all = append(all, etcd.Access{Endpoint: e, TLS: func() (*tls.Config, error) { return conf, nil }, Dial: r.Dial})
	}
	return all
}

// unfit asks all endpoints at once what is wrong with them; empty: all is well.
func unfit(ctx context.Context, endpoints []etcd.Access) string {
	var all sync.WaitGroup
	var mu sync.Mutex
	by := map[string][]string{} // endpoints by what is wrong
	for _, e := range endpoints {
		all.Go(func() {
			if err := etcd.Fit(ctx, e, config.MinEtcd); err != nil {
				mu.Lock()
				defer mu.Unlock()
				by[err.Error()] = append(by[err.Error()], e.Endpoint)
			}
		})
	}
	all.Wait()
	var each []string
	for _, why := range slices.Sorted(maps.Keys(by)) {
		slices.Sort(by[why])
		each = append(each, strings.Join(by[why], ", ")+": "+why)
	}
	return strings.Join(each, "; ")
}

// firstKey is a key under a prefix; empty: there is none.
func firstKey(ctx context.Context, at etcd.Access, prefix string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, etcd.Patience)
	defer cancel()
	client, err := etcd.New(at)
	if err != nil {
		return "", err
	}
	defer client.Close()
	return client.FirstKey(ctx, prefix)
}
