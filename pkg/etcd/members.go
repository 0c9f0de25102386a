package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/kubexm/kubexm/pkg/util/human"
)

// AddLearner adds a member that follows and does not vote yet, and returns it with the list that has it. Its process
// is started after that, with the peer addresses of this list. That needs a majority, and every
// member that votes connected to the one that is asked, for 5 seconds at least (etcd's HealthInterval). An
// error may hide that it was done: look for the peer address in the list before asking again.
func (c *Client) AddLearner(ctx context.Context, peerURL string) (added Member, all []Member, err error) {
	resp, err := c.client.MemberAddAsLearner(ctx, []string{peerURL})
	if err != nil {
		return Member{}, nil, c.explain("adding a member to etcd", err)
	}
	return entry(resp.Member), entries(resp.Members), nil
}

// Promote gives a learner its vote; one that has it is left as it is. That needs a majority. While the learner is
// behind the error is transient: ask again. The leader looks at the log alone: a learner that
// was in sync and died is promoted, so look whether it is healthy before.
func (c *Client) Promote(ctx context.Context, id uint64) error {
	_, err := c.client.MemberPromote(ctx, id)
	if errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return nil
	}
	return c.explain("promoting a member of etcd", err)
}

// Remove takes a member out of the list for good, if it is there: its process ends, and its data is of no more use.
// That needs a majority. The member that is asked may be the one that is removed: it answers before it ends.
func (c *Client) Remove(ctx context.Context, id uint64) error {
	_, err := c.client.MemberRemove(ctx, id)
	if errors.Is(err, rpctypes.ErrMemberNotFound) {
		return nil
	}
	return c.explain("removing a member of etcd", err)
}

// Move tells all members under which address a member is reached by the others. That needs a majority.
func (c *Client) Move(ctx context.Context, id uint64, peerURL string) error {
	_, err := c.client.MemberUpdate(ctx, id, []string{peerURL})
	return c.explain("changing the address of a member of etcd", err)
}

// refusal is in plain words why etcd does not change the list of members.
type refusal struct {
	text, advice string
	passing      bool
}

// refusals are by what etcd answers (its etcdserver/server.go, mayAddMember and those after it).
var refusals = map[error]refusal{
	rpctypes.ErrTooManyLearners: {
		"another member is still a learner, and etcd takes one at a time (--max-learners)",
		"let that one be promoted once it is in sync, or remove it: etcdctl member list", false,
	},
	rpctypes.ErrUnhealthy: { // passes, where the members have only just found each other
		"too few of the members that vote are connected to this one, or for less than 5 seconds",
		"bring up the members that are down (kubexm status), or remove one that is gone for good", true,
	},
	rpctypes.ErrMemberNotEnoughStarted: {
		"too few of the members that would vote have ever started",
		"start the members that were added, or remove them: etcdctl member list", false,
	},
	rpctypes.ErrPeerURLExist: {
		"another member has that peer address",
		"see which: etcdctl member list; one that is gone for good must be removed first", false,
	},
	rpctypes.ErrMemberLearnerNotReady: {"the learner is not in sync with the leader yet", "", true},
}

func entries(all []*pb.Member) (members []Member) {
	for _, m := range all {
		members = append(members, entry(m))
	}
	return members
}

func entry(m *pb.Member) Member {
	return Member{m.ID, human.Line(m.Name), m.PeerURLs, m.ClientURLs, m.IsLearner}
}
