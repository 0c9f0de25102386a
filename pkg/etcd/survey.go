package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// Patience is how long Survey and Fit wait for one member.
const Patience = 5 * time.Second

// View is what the members of a cluster say, asked at one time.
type View struct {
	Members []State          // by the list of members, sorted by name and ID; empty: nobody answered
	Errs    map[string]error // by endpoint that was asked: why it did not speak for a member of the list
}

// State is a member, as the list has it and as it says itself.
type State struct {
	Member
	Status        // its zero value where the member did not answer
	Behind uint64 // how many entries of the log it has yet to get
	Err    error  // why it is not healthy: it does not answer, is in no majority, an alarm was raised
}

// InSync reports whether the member is healthy and has all but the latest entries: what a
// follower that keeps up lacks between two heartbeats.
func (s State) InSync() bool { return s.Err == nil && s.Behind <= MostBehind }

// MostBehind is the lag of a follower that keeps up, with members asked one after the other under a
// load of some thousand writes a second. One that is further behind than --snapshot-count entries
// (10000) is sent a whole snapshot.
const MostBehind = 1000

// Survey asks for the list of members at every endpoint, and each member on it how it is, all side by side. A
// member that no endpoint led to is asked at the address in the list, from where the first
// endpoint that answered was dialed. Each member has Patience to answer.
func Survey(ctx context.Context, endpoints []Access) View {
	answers := side(endpoints, func(a Access) answer { return ask(ctx, a) })
	view := View{Errs: map[string]error{}}
	var best *answer
	for i := range answers {
		if a := &answers[i]; a.members != nil && (best == nil || a.status.RaftIndex > best.status.RaftIndex) {
			best = a
		}
	}
	if best == nil {
		for _, a := range answers {
			view.Errs[a.Endpoint] = cmp.Or(a.err, errors.New("it is a learner, which does not say who the members are"))
		}
		return view
	}
	view.Members = side(best.members, func(m Member) State {
		if a := of(m, answers); a != nil {
			return State{Member: m, Status: a.status, Err: a.err}
		}
		if len(m.ClientURLs) == 0 {
			return State{Member: m, Err: errors.New("it was added, and has not started yet")}
		}
		a := ask(ctx, Access{m.ClientURLs[0], best.TLS, best.Dial})
		return State{Member: m, Status: a.status, Err: a.err}
	})
	for _, a := range answers {
		if !slices.ContainsFunc(best.members, a.speaksFor) {
			view.Errs[a.Endpoint] = cmp.Or(a.err, errors.New("it is not a member of the same cluster as the others"))
		}
	}
	view.compare()
	return view
}

// side calls f for all at once.
func side[T, R any](all []T, f func(T) R) []R {
	results := make([]R, len(all))
	var group sync.WaitGroup
	for i, one := range all {
		group.Go(func() { results[i] = f(one) })
	}
	group.Wait()
	return results
}

// answer is what came from one endpoint.
type answer struct {
	Access
	members []Member // nil: none came, or from a learner
	status  Status
	err     error
}

func ask(ctx context.Context, at Access) answer {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	a := answer{Access: at}
	c, err := New(at)
	if err != nil {
		a.err = err
		return a
	}
	defer c.Close()
	if a.status, a.err = c.Status(ctx); a.err != nil {
		return a
	}
	if a.status.Learner { // which answers nothing else (etcd's isRPCSupportedForLearner)
		a.err = a.status.wrong()
		return a
	}
	if a.members, a.err = c.Members(ctx); a.err != nil {
		return a
	}
	if a.err = a.status.wrong(); a.err == nil {
		a.err = c.Health(ctx)
	}
	return a
}

// alarm is how members show an alarm among their errors (etcdserverpb.AlarmMember).
var alarm = regexp.MustCompile(`alarm:\s*(\w+)`)

// Alarms are the types of the alarms that members raised, which no restart ends: NOSPACE, CORRUPT.
func (s Status) Alarms() (all []string) {
	for _, e := range s.Errors {
		if found := alarm.FindStringSubmatch(e); len(found) > 0 && !slices.Contains(all, found[1]) {
			all = append(all, found[1])
		}
	}
	return all
}

// wrong says what the member itself finds wrong.
func (s Status) wrong() error {
	var all []string
	for _, a := range s.Alarms() {
		all = append(all, "alarm "+a)
	}
	for _, e := range s.Errors {
		if !alarm.MatchString(e) {
			all = append(all, e)
		}
	}
	if all == nil {
		return nil
	}
	return errors.New(strings.Join(all, ", "))
}

// of is the answer of a member.
func of(m Member, answers []answer) *answer {
	if i := slices.IndexFunc(answers, func(a answer) bool { return a.speaksFor(m) }); i >= 0 {
		return &answers[i]
	}
	return nil
}

// speaksFor reports whether the answer, or the lack of one, is the member's.
func (a answer) speaksFor(m Member) bool {
	return a.status.ID == m.ID || a.status.ID == 0 && slices.Contains(m.ClientURLs, a.Endpoint)
}

// compare finds who is behind, and who follows another leader than the rest.
func (v View) compare() {
	slices.SortFunc(v.Members, func(a, b State) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Member.ID, b.Member.ID))
	})
	top, leader := uint64(0), v.LeaderID()
	for _, m := range v.Members {
		top = max(top, m.RaftIndex)
	}
	for i := range v.Members {
		m := &v.Members[i]
		if m.Status.ID == 0 {
			continue
		}
		m.Behind = top - m.RaftIndex
		if m.Err == nil && (m.Leader == 0 || m.Leader != leader) {
			m.Err = errors.New("it does not follow the leader of the others")
		}
	}
}

// LeaderID is the ID of the member that leads, as those of the latest term say; 0: none does, or nobody who answered knows it.
func (v View) LeaderID() (leader uint64) {
	term := uint64(0)
	for _, m := range v.Members {
		if m.Leader != 0 && m.RaftTerm >= term {
			leader, term = m.Leader, m.RaftTerm
		}
	}
	return leader
}

// Member returns the member that serves clients at the endpoint, or has that name; nil: there is none.
func (v View) Member(endpoint, name string) *State {
	for i := range v.Members {
		if m := &v.Members[i]; slices.Contains(m.ClientURLs, endpoint) || m.Name == name {
			return m
		}
	}
	return nil
}

// ByPeer returns the member that the others reach at the URL; nil: there is none.
func (v View) ByPeer(url string) *State {
	return v.find(func(m Member) bool { return slices.Contains(m.PeerURLs, url) })
}

// ByID returns the member with the ID; nil: there is none.
func (v View) ByID(id uint64) *State { return v.find(func(m Member) bool { return m.ID == id }) }

func (v View) find(is func(Member) bool) *State {
	for i := range v.Members {
		if is(v.Members[i].Member) {
			return &v.Members[i]
		}
	}
	return nil
}

// Quorum returns how many members that vote are healthy, how many there are, and how many a majority is.
func (v View) Quorum() (healthy, total, majority int) {
	for _, m := range v.Members {
		if m.Member.Learner {
			continue
		}
		total++
		if m.Err == nil {
			healthy++
		}
	}
	return healthy, total, total/2 + 1
}

// Fit asks one endpoint whether it is healthy and at least of a version, such as "v3.5.24".
func Fit(ctx context.Context, at Access, least string) error {
	a := ask(ctx, at)
	switch is, err := version.ParseSemantic(a.status.Version); {
	case a.err != nil && a.members != nil:
		return fmt.Errorf("not healthy: %w", a.err)
	case a.err != nil:
		return a.err
	case a.status.Learner:
		return errors.New("a learner, which answers no reads")
	case err != nil || is.LessThan(version.MustParseSemantic(least)):
		return fmt.Errorf("version %q", a.status.Version)
	}
	return nil
}
