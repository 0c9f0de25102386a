package app

import (
	"context"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/observe"
)

// tryEtcd looks at an external etcd, unless that check is skipped.
func (s *session) tryEtcd(ctx context.Context) []cluster.Finding {
	if slices.Contains(s.SkipPreflight, cluster.EtcdCheck) {
		return nil
	}
	return observe.ExternalEtcd(ctx, s.cluster, s.hosts)
}

// tellEtcd says what a deleted cluster leaves in an external etcd.
func (s *session) tellEtcd() {
	if s.cluster.ExternalEtcd() {
		s.notice("etcd at %s is left alone: what the cluster stored, including its secrets, is still there; to remove it: etcdctl del --prefix %s",
			strings.Join(s.cluster.Spec.Etcd.External.Endpoints, ","), s.cluster.EtcdPrefix())
	}
}
