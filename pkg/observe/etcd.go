package observe

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// etcd asks the members: each from its own host, or from that of another one where it cannot be reached.
func (l *look) etcd(ctx context.Context) {
	hosts := l.EtcdHosts()
	var ask []etcd.Access
	for _, h := range hosts {
		if access, ok := l.member(h, hosts); ok {
			ask = append(ask, access)
		}
	}
	if len(ask) == 0 {
		return // all are out of reach, which is told
	}
	view := etcd.Survey(ctx, ask)
	told := map[uint64]bool{}
	var answered int
	for _, s := range view.Members {
		if s.Status.ID != 0 {
			answered++
		}
	}
	electing := answered > len(view.Members)/2 // so it is for a moment, if none leads
	for _, h := range hosts {
		at := l.EtcdAccess(h).Endpoint
		m := cluster.EtcdMember{Host: h}
		if s := view.Member(at, h); s != nil {
			m = member(h, *s, view.LeaderID(), electing)
			told[m.ID] = true
		} else {
			m.Err, m.Stopped = human.Line(l.absent(h, view.Errs[at]).Error()), refused(view.Errs[at])
		}
		l.tell(m)
	}
	for _, s := range view.Members {
		if !told[s.Member.ID] {
			host := l.leaver(s)
			if host == "" {
				l.problem("member %s of etcd (%s) is on no host of the configuration", s.Name, strings.Join(s.PeerURLs, ", "))
			}
			l.tell(member(host, s, view.LeaderID(), electing))
		}
	}
}

// leaver is the host that leaves the cluster, or is no member's any more, that a member is on; empty: none.
func (l *look) leaver(s etcd.State) string {
	for _, h := range append(l.All(), l.Leaving()...) {
		if s.Name == h || s.Name == "" && slices.Contains(s.PeerURLs, l.PeerURL(h)) {
			return h
		}
	}
	return ""
}

// member is how to ask the member of a host.
func (l *look) member(host string, others []string) (etcd.Access, bool) {
	access := l.EtcdAccess(host)
	for _, from := range append([]string{host}, others...) {
		if r := l.hosts[from]; r != nil {
			access.Dial = r.Dial
			return access, true
		}
	}
	return access, false
}

// absent says why a host has no member that is known.
func (l *look) absent(host string, err error) error {
	switch {
	case l.unreached[host] != nil:
		return l.unreached[host]
	case err == nil:
		return errors.New("it is not a member")
	}
	return err
}

// refused reports whether nobody listens there: what sshd says of the host, in its words or ours.
func refused(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "connection refused")
}

func member(host string, s etcd.State, leader uint64, electing bool) cluster.EtcdMember {
	m := cluster.EtcdMember{
		Host: host, Name: s.Name, ID: s.Member.ID, Healthy: s.Err == nil, Leader: s.Member.ID == leader, Learner: s.Member.Learner, Started: len(s.ClientURLs) > 0,
		Stopped: s.Leader == 0 && (s.Status.ID != 0 && !electing || refused(s.Err)),
		Version: s.Version, DBSize: s.DBSize, InUse: s.InUse, Quota: s.Quota, Behind: s.Behind, PeerURLs: s.PeerURLs,
	}
	if s.Err != nil {
		m.Err = human.Line(s.Err.Error())
	}
	return m
}

// tell adds a member, and what is wrong with it.
func (l *look) tell(m cluster.EtcdMember) {
	l.mu.Lock()
	l.is.Members = append(l.is.Members, m)
	l.mu.Unlock()
	var err error
	if m.Err != "" {
		err = errors.New(m.Err)
	}
	switch {
	case m.Host == "": // which is a problem
		return
	case m.Learner:
		l.problem("etcd on %s: it is a learner, and has no vote", m.Host)
	case err == nil && m.Behind > etcd.MostBehind:
		l.problem("etcd on %s: it is %d log entries behind", m.Host, m.Behind)
	}
	l.component(m.Host, "etcd", m.Version, err)
}
