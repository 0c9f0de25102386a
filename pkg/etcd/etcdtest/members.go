package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What etcd 3.6 has in etcdserver/server.go; reqTimeout with the default times of elections.
const (
	HealthInterval = 5 * time.Second // for so long members are connected before a change counts on it
	ready          = 0.9             // of the leader's log, which a learner must have
	reqTimeout     = 7 * time.Second
)

// CatchUp is how long a member that started takes to get the log of the others.
const CatchUp = time.Second

// errRemoved is why a member that was removed ends (etcdserver/api/rafthttp/util.go).
var errRemoved = errors.New("the member has been permanently removed from the cluster")

// Start is the process of a member that begins without data (--initial-cluster-state existing). It must be in
// the list, under its peer URL, and not have started before. Then it has its name and client URL, and
// gets the log within CatchUp. peers are the peer URLs of its --initial-cluster, which must be those of
// the list; none: that is not looked at. Errors are etcd's.
func (c *Cluster) Start(peerURL, name, clientURL string, peers ...string) (*Member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.ContainsFunc(c.members, func(m *Member) bool { return !m.Down }) {
		return nil, errors.New("cannot fetch cluster info from peer urls: could not retrieve cluster information from the given URLs")
	}
	m := c.find(func(m *Member) bool { return m.PeerURL == peerURL })
	if m == nil || peers != nil && len(peers) != len(c.members) {
		return nil, errors.New("error validating peerURLs: member count is unequal")
	}
	if other := c.find(func(m *Member) bool { return peers != nil && !slices.Contains(peers, m.PeerURL) }); other != nil {
		return nil, fmt.Errorf("error validating peerURLs: PeerURLs: no match found for existing member (%x, [%s])", other.id, other.PeerURL)
	}
	if m.Name != "" {
		return nil, fmt.Errorf("tocommit(%d) is out of range [lastIndex(0)]. Was the raft log corrupted, truncated, or lost?", c.index)
	}
	all := c.index
	m.Name, m.ClientURL, m.Down, m.Behind, m.since = name, clientURL, false, all, time.Now()
	time.AfterFunc(CatchUp, func() {
		c.Set(m, func(m *Member) {
			if m.Behind == all { // nobody else said
				m.Behind = 0
			}
		})
	})
	return m, nil
}

// Restart is the process of a member that has its data. One that was removed ends with an error.
func (c *Cluster) Restart(m *Member) error {
	if c.Removed(m.id) {
		return errRemoved
	}
	c.Set(m, func(m *Member) { m.Down = false })
	return nil
}

// Removed reports whether a member was removed, and never comes back.
func (c *Cluster) Removed(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removed[id]
}

// Before sets what is called before each change that is asked of a member, with the words of History, and may fail it.
func (c *Cluster) Before(f func(change string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = f
}

// History are the changes that members were asked for and made: "add node4", "promote node4", "move node4", "remove node1".
// A member that has no name yet is called by its peer URL.
func (c *Cluster) History() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.history {
		all = append(all, h.verb+" "+h.m.called())
	}
	return all
}

// done is a change that was made.
type done struct {
	verb string
	m    *Member
}

func (m *Member) called() string {
	switch {
	case m == nil:
		return "nobody"
	case m.Name == "":
		return m.PeerURL
	}
	return m.Name
}

// find returns the first member of the list that is as said; nil: there is none.
func (c *Cluster) find(is func(*Member) bool) *Member {
	if i := slices.IndexFunc(c.members, is); i >= 0 {
		return c.members[i]
	}
	return nil
}

func (c *Cluster) byID(id uint64) *Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(func(m *Member) bool { return m.id == id })
}

// connected counts the members that vote and are connected to m for long enough.
func (c *Cluster) connected(m *Member) (count, voters int) {
	for _, other := range c.members {
		if other.Learner {
			continue
		}
		voters++
		if other == m || !other.Down && time.Since(m.since) > HealthInterval && time.Since(other.since) > HealthInterval {
			count++
		}
	}
	return count, voters
}

// started reports whether the members that vote, without one and with some more, have a majority that has started.
func (c *Cluster) started(without *Member, more int) bool {
	voters, started := more, more
	for _, m := range c.members {
		if m.Learner || m == without {
			continue
		}
		voters++
		if m.Name != "" {
			started++
		}
	}
	return started > voters/2
}

// change makes a change of the list of members in the order of etcd: the member that is asked refuses what it may not do,
// a leader is waited for, and what cannot be done is found out when it is done.
func (s clusterService) change(ctx context.Context, verb string, m *Member, may, do func() error) (*pb.ResponseHeader, []*pb.Member, error) {
	c := s.m.cluster
	c.mu.Lock()
	words, before := verb+" "+m.called(), c.before
	c.mu.Unlock()
	if before != nil {
		if err := before(words); err != nil {
			return nil, nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := may(); err != nil {
		return nil, nil, err
	}
	if c.leader == nil {
		c.mu.Unlock()
		<-ctx.Done() // as etcd waits: until the one who asked gives up
		c.mu.Lock()
		return nil, nil, ctx.Err()
	}
	if err := do(); err != nil {
		return nil, nil, err
	}
	c.index++
	c.history = append(c.history, done{verb, m})
	c.elect()
	return s.m.header(), c.list(), nil
}

// drop takes a member out of the list for good.
func (c *Cluster) drop(m *Member) {
	c.members = slices.DeleteFunc(c.members, func(other *Member) bool { return other == m })
	c.removed[m.id] = true
}

// taken reports whether another member has a peer URL.
func (c *Cluster) taken(url string, m *Member) bool {
	return c.find(func(other *Member) bool { return other != m && other.PeerURL == url }) != nil
}

func (s clusterService) MemberAdd(ctx context.Context, r *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	c := s.m.cluster
	if !r.IsLearner || len(r.PeerURLs) != 1 {
		return nil, status.Error(codes.Unimplemented, "etcdtest adds learners with one address")
	}
	c.mu.Lock()
	m := c.member()
	c.mu.Unlock()
	m.PeerURL, m.Learner, m.Down = r.PeerURLs[0], true, true
	header, all, err := s.change(ctx, "add", m, func() error {
		if up, voters := c.connected(s.m); up < voters {
			return rpctypes.ErrGRPCUnhealthy
		}
		return nil
	}, func() error {
		switch {
		case c.taken(m.PeerURL, m):
			return rpctypes.ErrGRPCPeerURLExist
		case c.find(func(m *Member) bool { return m.Learner }) != nil: // --max-learners is 1
			return rpctypes.ErrGRPCTooManyLearners
		}
		c.members = append(c.members, m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &pb.MemberAddResponse{Header: header, Member: all[len(all)-1], Members: all}, nil
}

func (s clusterService) MemberPromote(ctx context.Context, r *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	c := s.m.cluster
	m := c.byID(r.ID)
	waiting, cancel := context.WithTimeout(ctx, reqTimeout)
	defer cancel()
	header, all, err := s.change(waiting, "promote", m, func() error {
		switch {
		case c.leader == nil: // which is asked about all this
			return nil
		case m == nil:
			return rpctypes.ErrGRPCMemberNotFound
		case m.Name == "", float64(c.index-m.Behind)/float64(c.index) < ready: // the log alone counts: it may be down
			return rpctypes.ErrGRPCLearnerNotReady
		case !c.started(nil, 1):
			return rpctypes.ErrMemberNotEnoughStarted // not a status in etcd, either
		}
		return nil
	}, func() error {
		if !m.Learner {
			return rpctypes.ErrGRPCMemberNotLearner
		}
		m.Learner = false
		return nil
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil, rpctypes.ErrGRPCNoLeader
	case err != nil:
		return nil, err
	}
	return &pb.MemberPromoteResponse{Header: header, Members: all}, nil
}

func (s clusterService) MemberRemove(ctx context.Context, r *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	c := s.m.cluster
	m := c.byID(r.ID)
	header, all, err := s.change(ctx, "remove", m, func() error {
		switch up, voters := c.connected(s.m); {
		case m == nil, m.Learner:
		case !c.started(m, 0):
			return rpctypes.ErrMemberNotEnoughStarted
		case m != s.m && m.Down: // it is in no majority, anyway
		case up <= 1+(voters-1)/2: // without it those that are left are no majority
			return rpctypes.ErrGRPCUnhealthy
		}
		return nil
	}, func() error {
		if m == nil || c.removed[m.id] {
			return rpctypes.ErrGRPCMemberNotFound
		}
		c.drop(m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	// It ends once it has applied that, a second later (etcdserver/server.go, stopWithDelay).
	time.AfterFunc(time.Second, func() { c.Set(m, func(m *Member) { m.Down = true }) })
	return &pb.MemberRemoveResponse{Header: header, Members: all}, nil
}

func (s clusterService) MemberUpdate(ctx context.Context, r *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	c := s.m.cluster
	m := c.byID(r.ID)
	if len(r.PeerURLs) != 1 {
		return nil, status.Error(codes.Unimplemented, "etcdtest has members with one address")
	}
	header, all, err := s.change(ctx, "move", m, func() error { return nil }, func() error {
		switch {
		case m == nil || c.removed[m.id]:
			return rpctypes.ErrGRPCMemberNotFound
		case c.taken(r.PeerURLs[0], m):
			return rpctypes.ErrGRPCPeerURLExist
		}
		m.PeerURL = r.PeerURLs[0]
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &pb.MemberUpdateResponse{Header: header, Members: all}, nil
}
