package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
)

// tryEtcd looks at an external etcd from the masters that are not part of the cluster yet, and
// finds what would make them fail.
func (s *session) tryEtcd(ctx context.Context) (found []cluster.Finding) {
	members := s.cluster.Members()
	masters := slices.DeleteFunc(s.cluster.Masters(), func(h string) bool { return slices.Contains(members, h) || s.cluster.Facts[h] == nil })
	if !s.cluster.ExternalEtcd() || len(masters) == 0 || slices.Contains(s.SkipPreflight, cluster.EtcdCheck) {
		return nil
	}
	add := func(host, what, needed, fix string) {
		found = append(found, cluster.Finding{Host: host, Check: cluster.EtcdCheck, Error: true, Found: what, Needed: needed, Fix: fix})
	}
	conf, expired, err := s.cluster.EtcdClient().TLS()
	if err = errors.Join(err, expired); err != nil {
		add(plan.Control, err.Error(), "a client certificate that etcd takes", "put a valid one into the files of spec.etcd.external")
		return found
	}
	var all errgroup.Group
	wrong := make([]string, len(masters))
	for i, h := range masters {
		all.Go(func() error { wrong[i] = s.askEtcd(ctx, s.hosts[h], conf); return nil })
	}
	_ = all.Wait() // wrong has it all
	for i, h := range masters {
		if wrong[i] != "" {
			add(h, wrong[i], "all endpoints in good health, "+config.MinEtcd+" or newer, for this client",
				"look at etcd and its log; let the masters reach it; correct the endpoints and files of spec.etcd.external")
		}
	}
	if found != nil || len(masters) < len(s.cluster.Masters()) { // what is in there may be this cluster's
		return found
	}
	prefix := s.cluster.EtcdPrefix()
	switch key, err := firstKey(ctx, s.hosts[masters[0]], s.cluster.Spec.Etcd.External.Endpoints[0], prefix, conf); {
	case err != nil:
		add(masters[0], fmt.Sprintf("what etcd holds under %s cannot be seen: %v", prefix, err), "no objects of another cluster", "make sure of it: etcdctl get --prefix --keys-only --limit 1 "+prefix)
		found[0].Error = false
	case key != "":
		add(masters[0], fmt.Sprintf("etcd holds objects of another cluster, like %s", key), "nothing under "+prefix,
			"if that cluster lives, use another etcd, or spec.kubernetes.apiServer.extraArgs.etcd-prefix; if it is gone: etcdctl del --prefix "+prefix)
	}
	return found
}

// askEtcd asks all endpoints from a host at once; empty: all is well.
func (s *session) askEtcd(ctx context.Context, r *runner.Runner, conf *tls.Config) string {
	var all errgroup.Group
	var mu sync.Mutex
	endpoints := map[string][]string{} // by what is wrong
	for _, e := range s.cluster.Spec.Etcd.External.Endpoints {
		all.Go(func() error {
			if err := etcdFit(ctx, r, e, conf); err != nil {
				mu.Lock()
				defer mu.Unlock()
				endpoints[err.Error()] = append(endpoints[err.Error()], e)
			}
			return nil
		})
	}
	_ = all.Wait() // endpoints has what failed
	var each []string
	for _, why := range slices.Sorted(maps.Keys(endpoints)) {
		slices.Sort(endpoints[why])
		each = append(each, strings.Join(endpoints[why], ", ")+": "+why)
	}
	return strings.Join(each, "; ")
}

// etcdFit asks one endpoint how it is, and how old.
func etcdFit(ctx context.Context, r *runner.Runner, endpoint string, conf *tls.Config) error {
	err := etcdHealth(ctx, r, endpoint, conf)
	if err != nil {
		return err
	}
	body, err := get(ctx, r, endpoint+"/version", conf)
	if err != nil {
		return err
	}
	var is struct{ Etcdserver string }
	if err := json.Unmarshal(body, &is); err != nil {
		return fmt.Errorf("asking for the version: %w", err)
	}
	if v, err := version.ParseSemantic(is.Etcdserver); err != nil || v.LessThan(version.MustParseSemantic(config.MinEtcd)) {
		return fmt.Errorf("version %q", is.Etcdserver)
	}
	return nil
}

// etcdHealth asks a member of etcd how it is.
func etcdHealth(ctx context.Context, r *runner.Runner, endpoint string, conf *tls.Config) error {
	body, err := get(ctx, r, endpoint+"/health", conf)
	if err != nil {
		return err
	}
	var is struct{ Health, Reason string }
	if json.Unmarshal(body, &is) != nil || is.Health != "true" {
		return fmt.Errorf("not healthy: %s", is.Reason)
	}
	return nil
}

// firstKey is a key under a prefix that ends with a slash; empty: there is none.
//
// Facts: https://etcd.io/docs/latest/dev-guide/api_grpc_gateway
func firstKey(ctx context.Context, r *runner.Runner, endpoint, prefix string, conf *tls.Config) (string, error) {
	type request struct {
		Key      []byte `json:"key"`
		RangeEnd []byte `json:"range_end"` // the first key behind the range
		Limit    int    `json:"limit"`
		KeysOnly bool   `json:"keys_only"`
	}
	question, err := json.Marshal(request{[]byte(prefix), []byte(strings.TrimSuffix(prefix, "/") + "0"), 1, true}) // "0" comes after "/"
	if err != nil {
		return "", err
	}
	body, err := ask(ctx, r, http.MethodPost, endpoint+"/v3/kv/range", question, conf)
	if err != nil {
		return "", err
	}
	var answer struct{ Kvs []struct{ Key []byte } }
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.Kvs) == 0 {
		return "", err
	}
	return string(answer.Kvs[0].Key), nil
}

// tellEtcd says what a deleted cluster leaves in an external etcd.
func (s *session) tellEtcd() {
	if s.cluster.ExternalEtcd() {
		s.notice("etcd at %s is left alone: what the cluster stored, its secrets too, is still there; to remove it: etcdctl del --prefix %s",
			strings.Join(s.cluster.Spec.Etcd.External.Endpoints, ","), s.cluster.EtcdPrefix())
	}
}
