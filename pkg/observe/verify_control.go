package observe

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
)

// etcdMembers are those that were observed.
func etcdMembers(v *verification) (rows []Check) {
	if v.ExternalEtcd() {
		return nil
	}
	if !slices.ContainsFunc(v.is.Members, func(m cluster.EtcdMember) bool { return m.ID != 0 }) {
		why := errors.New("no member could be asked")
		for _, m := range v.is.Members {
			why = errors.New(m.Err)
		}
		return []Check{unknown("etcd", why)}
	}
	for _, m := range v.is.Members {
		peers := strings.Join(m.PeerURLs, ", ")
		found := cmp.Or(m.Name, "no name") + " at " + peers
		switch {
		case m.ID == 0:
			found = "no member"
		case m.Learner:
			found += ", a learner"
		case !m.Healthy:
			found += ", not healthy: " + m.Err
		}
		wanted := "no member"
		if slices.Contains(v.All(v1alpha1.RoleEtcd), m.Host) {
			wanted = m.Host + " at " + v.PeerURL(m.Host)
		}
		rows = append(rows, same(cmp.Or(m.Host, m.Name, peers), found, wanted))
	}
	return rows
}

// externalEtcd is whether masters reach an etcd that is not kubexm's: who its members are is its owner's to know.
func externalEtcd(v *verification) (rows []Check) {
	if !v.ExternalEtcd() {
		return nil
	}
	for _, m := range v.masters() {
		if v.hosts[m] == nil {
			rows = append(rows, unknown(m, v.unreached[m]))
		} else {
			rows = append(rows, lists(m, v.reached[m], v.EtcdURLs()))
		}
	}
	return rows
}

// certificateNames are the names in what API servers show. Nobody misses the others that kubexm gives them.
func certificateNames(v *verification) (rows []Check) {
	for _, m := range v.masters() {
		shown, is := v.served[m]
		if !is {
			rows = append(rows, unknown(m, v.silent[m]))
			continue
		}
		wanted := slices.Concat([]string{m}, v.Addresses(m), v.APIServerSANs())
		found := slices.DeleteFunc(slices.Clone(wanted), func(name string) bool {
			return shown.VerifyHostname(name) != nil && !slices.Contains(shown.DNSNames, name)
		})
		rows = append(rows, lists(m, found, wanted))
	}
	return rows
}

// meet asks, from a master, for the certificate that its API server shows, and whether an external etcd answers.
func (v *verification) meet(ctx context.Context, r *runner.Runner) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var group sync.WaitGroup
	if v.ExternalEtcd() {
		for _, endpoint := range v.EtcdURLs() {
			group.Go(func() {
				at, err := url.Parse(endpoint)
				if err != nil {
					return
				}
				if conn, err := r.Dial(ctx, "tcp", at.Host); err == nil {
					conn.Close()
					v.mu.Lock()
					defer v.mu.Unlock()
					v.reached[r.Host] = append(v.reached[r.Host], endpoint)
				}
			})
		}
	}
	shown, err := shows(ctx, r, v.APIAddress(r.Host))
	kept(&v.mu, r.Host, shown, err, v.served, v.silent)
	group.Wait()
}

// shows returns the certificate of a server. Whether it is trusted is asked by all others who call it.
func shows(ctx context.Context, r *runner.Runner, address string) (shown *x509.Certificate, err error) {
	conn, err := r.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	err = tls.Client(conn, &tls.Config{
		ServerName: "kubernetes", InsecureSkipVerify: true, //nolint:gosec // it is only looked at
		VerifyConnection: func(state tls.ConnectionState) error {
			shown = state.PeerCertificates[0]
			return nil
		},
	}).HandshakeContext(ctx)
	if shown != nil { // the server may want to know who asks
		err = nil
	}
	return shown, err
}
