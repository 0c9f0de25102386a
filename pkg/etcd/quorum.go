package etcd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Change is what may cost a cluster its majority.
type Change int

// The changes that Allows knows.
const (
	Removal   Change = iota // the member leaves the list for good
	Promotion               // the learner gets its vote
	Pause                   // the member is stopped for a while, and stays in the list
)

// Allows says with the numbers why a change of a member would cost the majority, or that there is none to decide on it; nil:
// it may be made. To remove a member that does not work lowers what a majority is, and is allowed while there is
// one. To pause what does not work, or has no vote, costs nothing. One or two members have no majority
// to spare: they never allow a pause of one that works. A learner may be promoted once it is healthy and in sync;
// that it is behind is transient. The view must be of now: etcd looks at less (mayRemoveMember,
// mayPromoteMember), and at what is connected for 5 seconds.
func (v View) Allows(c Change, m State) error {
	healthy, total, majority := v.Quorum()
	learner, works := m.Member.Learner, m.Err == nil
	now := count(healthy, total)
	switch {
	case c == Pause && (learner || !works), c == Promotion && !learner:
		return nil
	case c != Pause && healthy < majority:
		err := fmt.Errorf("%s: a majority is %d, and without one nothing can be changed", now, majority)
		return fault.Advise(err, "bring up enough of them: "+strings.Join(v.broken(0), ", "))
	case c == Promotion && !works:
		return fmt.Errorf("%s is not healthy: %w", m.Called(), m.Err)
	case c == Promotion && !m.InSync():
		return fault.Transient(fmt.Errorf("%s is %d log entries behind", m.Called(), m.Behind))
	case c == Promotion, learner: // one more of one more is a majority, too
		return nil
	case c == Removal && total == 1:
		return errors.New(m.Called() + " is the only member that votes")
	}
	if works {
		healthy--
	}
	if c == Removal {
		total--
	}
	if majority = total/2 + 1; healthy >= majority {
		return nil
	}
	err := fmt.Errorf("%s; without %s %d of %d would be left: a majority is %d", now, m.Called(), healthy, total, majority)
	if broken := v.broken(m.Member.ID); broken != nil {
		err = fault.Advise(err, "bring up "+strings.Join(broken, ", ")+" first, or remove what is gone for good")
	}
	return err
}

// Called is how people know the member: by its name, or its peer address until it has one.
func (m Member) Called() string {
	if m.Started() {
		return m.Name
	}
	return strings.Join(m.PeerURLs, ",")
}

// count is how many of those that vote are healthy, for people.
func count(healthy, total int) string {
	vote, are := "members vote", "are"
	if total == 1 {
		vote = "member votes"
	}
	if healthy == 1 {
		are = "is"
	}
	return fmt.Sprintf("%d %s, %d %s healthy", total, vote, healthy, are)
}

// broken are the members that vote and do not work, except one.
func (v View) broken(except uint64) (names []string) {
	for _, m := range v.Members {
		if m.Err != nil && !m.Member.Learner && m.Member.ID != except {
			names = append(names, m.Called())
		}
	}
	return names
}

// Count says how many members vote and how many of them are healthy, for people.
func (v View) Count() string {
	healthy, total, _ := v.Quorum()
	return count(healthy, total)
}
