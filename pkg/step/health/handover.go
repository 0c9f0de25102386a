package health

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// HandOver moves the leadership of etcd away from the member on the host, if it has it, to the follower that is
// furthest: a leader that is stopped is missed for an election, one that has handed over is not. Where there is no
// other member with a vote, or kubexm does not run etcd, there is nothing to do.
func HandOver(c *cluster.Cluster, host string) step.Step {
	return Leadership{Host: host, Etcd: members(c)}
}

// Leadership is the step of HandOver.
type Leadership struct {
	Host string
	Etcd []Member `json:",omitempty"`
}

func (l Leadership) String() string { return "leadership of etcd away from " + l.Host }

// Precheck asks who leads.
func (l Leadership) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	if len(l.Etcd) == 0 {
		return nil, nil
	}
	view := etcd.Survey(ctx, through(r, l.Etcd))
	own, at := l.own(view)
	if _, voters, _ := view.Quorum(); own == nil || own.Member.ID != view.LeaderID() || voters < 2 {
		return nil, nil
	}
	to := follower(view, own.Member.ID)
	if to == nil {
		return nil, fault.Advise(fmt.Errorf("the etcd member on %s is the leader, and no other can take over", l.Host), "see what is wrong with the others: kubexm status")
	}
	return &step.Change{
		Diff: "move the leadership of etcd from " + own.Name + " to " + to.Name,
		Run: func(ctx context.Context) error {
			at.Dial = r.Dial
			client, err := etcd.New(at)
			if err != nil {
				return err
			}
			defer client.Close()
			return client.MoveLeader(ctx, to.Member.ID)
		},
	}, nil
}

// own is the member of the host, and how to reach it; nil: there is none, or it does not answer.
func (l Leadership) own(view etcd.View) (*etcd.State, etcd.Access) {
	for _, m := range l.Etcd {
		if m.Host == l.Host {
			return view.Member(m.Access.Endpoint, m.Host), m.Access
		}
	}
	return nil, etcd.Access{}
}

// follower is the member with a vote that is healthy and lacks the least, the first by name among equals; nil: there is none.
func follower(view etcd.View, leader uint64) (best *etcd.State) {
	for i := range view.Members {
		m := &view.Members[i]
		if m.Member.ID == leader || m.Member.Learner || !m.InSync() {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(m.Behind, best.Behind), strings.Compare(m.Name, best.Name)) < 0 {
			best = m
		}
	}
	return best
}
