package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// membership is what a change of the members of etcd needs.
type membership struct {
	Host    string        // of the member
	PeerURL string        // where it serves other members
	DataDir string        `json:",omitempty"`
	Others  []etcd.Access `json:"-"` // through whom it is made
}

func membershipOf(c *cluster.Cluster, host string) membership {
	return membership{Host: host, PeerURL: c.PeerURL(host), DataDir: c.Spec.Etcd.DataDir, Others: accesses(c)}
}

// accesses are how to reach the members on connected hosts.
func accesses(c *cluster.Cluster) (all []etcd.Access) {
	for _, h := range c.EtcdHosts() {
		all = append(all, c.EtcdAccess(h))
	}
	return all
}

// survey asks all members, from where the host is. That none tells of the others is an error.
func (m membership) survey(ctx context.Context, r *runner.Runner) (etcd.View, error) {
	asked := slices.Clone(m.Others)
	for i := range asked {
		asked[i].Dial = r.Dial
	}
	view := etcd.Survey(ctx, asked)
	if len(view.Members) > 0 {
		return view, nil
	}
	var all []error
	for _, a := range asked {
		all = append(all, view.Errs[a.Endpoint])
	}
	return view, fault.Transient(fmt.Errorf("no member of etcd answers: %w", errors.Join(all...)))
}

// through calls do with a client of a healthy member that votes, another one than that of an ID if there is one.
func (m membership) through(r *runner.Runner, view etcd.View, not uint64, do func(*etcd.Client) error) error {
	at := -1
	for i, s := range view.Members {
		if s.Err == nil && !s.Member.Learner && len(s.ClientURLs) > 0 && (at < 0 || view.Members[at].Member.ID == not) {
			at = i
		}
	}
	if at < 0 {
		return fault.Advise(errors.New("etcd has no healthy member"), "see what is wrong with them: kubexm status")
	}
	return through(etcd.Access{Endpoint: view.Members[at].ClientURLs[0], TLS: m.Others[0].TLS}, r, do)
}

// Join makes a member that does not vote yet of a host, next to members that run, and tells it with whom it begins. A member that had its place
// before, and whose data is gone, makes room for it; data of one that was removed goes.
type Join struct{ membership }

// NewJoin returns the step for a host. It comes before Service.
func NewJoin(c *cluster.Cluster, host string) step.Step {
	return step.With(Join{membershipOf(c, host)}, step.Options{Timeout: 2 * time.Minute})
}

func (Join) String() string { return "join etcd" }

// Owns is the file that tells it.
func (Join) Owns() ([]string, error) { return []string{"path " + bootstrap}, nil }

// Precheck looks for the host among the members, and for data of a member on it.
func (j Join) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	view, err := j.survey(ctx, r)
	if err != nil {
		return nil, err
	}
	data, err := r.Exists(ctx, j.DataDir+"/member")
	own := view.ByPeer(j.PeerURL)
	if err != nil || own != nil && data != nil {
		return nil, err
	}
	diff := "+ member of etcd on " + j.Host + ", at first without a vote: " + view.Count()
	if own != nil && len(own.ClientURLs) > 0 {
		diff = fmt.Sprintf("- member %x of etcd, whose data is gone\n%s", own.Member.ID, diff)
	}
	return &step.Change{
		Diff: diff, Verify: step.Verified,
		Run: func(ctx context.Context) error {
			return waited(ctx, "adding a member of etcd on "+j.Host, func() error { return j.run(ctx, r, data != nil) })
		},
		Rollback: func(ctx context.Context) error { return j.leave(ctx, r) },
	}, nil
}

// run looks again each time: what was asked for may have been done although there was no answer.
func (j Join) run(ctx context.Context, r *runner.Runner, stale bool) error {
	view, err := j.survey(ctx, r)
	if err != nil {
		return err
	}
	own, members := view.ByPeer(j.PeerURL), listed(view)
	return j.through(r, view, 0, func(client *etcd.Client) (err error) {
		if own != nil && len(own.ClientURLs) > 0 {
			if err := client.Remove(ctx, own.Member.ID); err != nil {
				return err
			}
			own = nil
		}
		if stale { // before it is a member: a run that is cut off in between would take it for its own
			if _, err := r.Sh(ctx, "rm -rf "+runner.Quote(j.DataDir+"/member")); err != nil {
				return fmt.Errorf("removing the data of a former member of etcd: %w", err)
			}
		}
		if own == nil {
			if _, members, err = client.AddLearner(ctx, j.PeerURL); err != nil {
				return err
			}
		}
		return r.WriteFiles(ctx, runner.File{Path: bootstrap, Mode: 0o644, Data: j.bootstrap(members)})
	})
}

// bootstrap names the member as it will name itself, and the others as they do.
func (j Join) bootstrap(members []etcd.Member) []byte {
	var peers []string
	for _, m := range members {
		name := m.Name
		if slices.Contains(m.PeerURLs, j.PeerURL) {
			name = j.Host
		}
		for _, url := range m.PeerURLs {
			if name != "" {
				peers = append(peers, name+"="+url)
			}
		}
	}
	return fmt.Appendf(nil, "# Made by kubexm.\nETCD_INITIAL_CLUSTER=%s\nETCD_INITIAL_CLUSTER_STATE=existing\n", strings.Join(peers, ","))
}

// leave takes a member back that has no vote yet.
func (j Join) leave(ctx context.Context, r *runner.Runner) error {
	view, err := j.survey(ctx, r)
	if err != nil {
		return err
	}
	own := view.ByPeer(j.PeerURL)
	if own == nil || !own.Member.Learner {
		return nil
	}
	return j.through(r, view, own.Member.ID, func(client *etcd.Client) error { return client.Remove(ctx, own.Member.ID) })
}

// Promoted is a member that votes, as soon as it has what the others have.
type Promoted struct{ membership }

// Promote returns the step for the member of a host. It comes after Service.
func Promote(c *cluster.Cluster, host string) step.Step {
	return step.With(Promoted{membershipOf(c, host)}, step.Options{Timeout: 30 * time.Minute})
}

func (Promoted) String() string { return "vote in etcd" }

// Precheck asks the members.
func (p Promoted) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	view, err := p.survey(ctx, r)
	if err != nil {
		return nil, err
	}
	own := view.ByPeer(p.PeerURL)
	if own != nil && !own.Member.Learner {
		return nil, nil
	}
	return &step.Change{
		Diff: "the member of etcd on " + p.Host + " votes, once it is in sync", Verify: step.Verified,
		Run: func(ctx context.Context) error { return p.run(ctx, r) },
	}, nil
}

func (p Promoted) run(ctx context.Context, r *runner.Runner) error {
	err := waited(ctx, "waiting for the member of etcd on "+p.Host+" to be in sync", func() error { return p.try(ctx, r) })
	if err != nil && ctx.Err() != nil {
		err = fault.Advise(fmt.Errorf("%w\n%s", err, step.Journal(context.WithoutCancel(ctx), r, "etcd")), "see why it does not catch up with the others; then run again: it continues here")
	}
	return err
}

// try asks for the vote once.
func (p Promoted) try(ctx context.Context, r *runner.Runner) error {
	view, err := p.survey(ctx, r)
	if err != nil {
		return err
	}
	own := view.ByPeer(p.PeerURL)
	switch {
	case own == nil:
		return fmt.Errorf("%s is no member of etcd", p.Host)
	case !own.Member.Learner:
		return nil
	case own.Err != nil:
		return fault.Transient(own.Err)
	}
	return p.through(r, view, own.Member.ID, func(client *etcd.Client) error { return client.Promote(ctx, own.Member.ID) })
}

// Removed takes a member off etcd, for good: data with its ID is worth nothing any more.
type Removed struct {
	membership
	ID uint64 `json:",string"`
}

// Remove returns the step for a member. It runs on any host that reaches the others.
func Remove(c *cluster.Cluster, m cluster.EtcdMember) step.Step {
	return step.With(Removed{membership{Host: m.Host, Others: accesses(c)}, m.ID}, step.Options{Timeout: 2 * time.Minute})
}

func (m Removed) String() string {
	return fmt.Sprintf("etcd without the member %x of %s", m.ID, m.Host)
}

// Precheck asks the members.
func (m Removed) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	view, own, err := m.look(ctx, r)
	if err != nil || own == nil {
		return nil, err
	}
	return &step.Change{
		Diff: fmt.Sprintf("- member %x of etcd on %s: %s", m.ID, m.Host, view.Count()), Verify: step.Verified,
		Run: func(ctx context.Context) error {
			return waited(ctx, "removing the member of etcd on "+m.Host, func() error { return m.try(ctx, r) })
		},
	}, nil
}

// look finds the member among all; nil: it is none any more.
func (m Removed) look(ctx context.Context, r *runner.Runner) (etcd.View, *etcd.State, error) {
	view, err := m.survey(ctx, r)
	return view, view.ByID(m.ID), err
}

// try removes the member if there is a majority without it. Others may not be well for a moment.
func (m Removed) try(ctx context.Context, r *runner.Runner) error {
	view, own, err := m.look(ctx, r)
	if err != nil || own == nil {
		return err
	}
	if err := view.Allows(etcd.Removal, *own); err != nil {
		return fault.Transient(err)
	}
	return m.through(r, view, m.ID, func(client *etcd.Client) error { return client.Remove(ctx, m.ID) })
}

// Moved is a member that others reach at the address of its host.
type Moved struct {
	membership
	ID uint64 `json:",string"`
}

// Move returns the step for a member whose host has another address. It runs there.
func Move(c *cluster.Cluster, m cluster.EtcdMember) step.Step {
	return step.With(Moved{membershipOf(c, m.Host), m.ID}, step.Options{Timeout: 2 * time.Minute})
}

func (Moved) String() string { return "address in etcd" }

// Precheck asks the members.
func (m Moved) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	view, err := m.survey(ctx, r)
	own := view.ByID(m.ID)
	if err != nil || own == nil || slices.Equal(own.Member.PeerURLs, []string{m.PeerURL}) {
		return nil, err
	}
	return &step.Change{
		Diff: fmt.Sprintf("member %x of etcd: %s -> %s", m.ID, strings.Join(own.Member.PeerURLs, ", "), m.PeerURL), Verify: step.Verified,
		Run: func(ctx context.Context) error {
			return waited(ctx, "telling the address of the member of etcd on "+m.Host, func() error {
				view, err := m.survey(ctx, r)
				if err != nil {
					return err
				}
				return m.through(r, view, 0, func(client *etcd.Client) error { return client.Move(ctx, m.ID, m.PeerURL) })
			})
		},
	}, nil
}

// waited asks until what is asked for is done, or waiting does not help.
func waited(ctx context.Context, doing string, ask func() error) error {
	for pause := 200 * time.Millisecond; ; pause = min(pause*3/2, 2*time.Second) {
		err := ask()
		if err == nil || !fault.IsTransient(err) {
			return err
		}
		step.Tell(ctx, "waiting: "+err.Error())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
}

// listed is the list of members of a view.
func listed(view etcd.View) (all []etcd.Member) {
	for _, s := range view.Members {
		all = append(all, s.Member)
	}
	return all
}

// Gone ends the member of etcd on a host that is not to have one any more, and removes its data.
func Gone(c *cluster.Cluster) step.Step {
	data := runner.Quote(c.Spec.Etcd.DataDir + "/member")
	return step.Command{
		What:   "no member of etcd",
		Unless: "! systemctl is-active -q etcd && [ ! -e " + runner.ManifestDir + "/etcd.yaml ] && [ ! -e " + data + " ]",
		Run: "systemctl stop etcd 2>/dev/null || true\nrm -f " + runner.ManifestDir + `/etcd.yaml
i=0
while command -v crictl >/dev/null && [ -n "$(crictl ps -q --name '^etcd$' 2>/dev/null)" ] && [ $i -lt 150 ]; do i=$((i+1)); sleep 0.2; done
rm -rf ` + data + " /etc/kubernetes/pki/etcd",
	}
}
