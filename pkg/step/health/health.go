// Package health holds the gates of a control plane that runs: what must be well before a part of it is stopped,
// and after it was started again.
package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Timeout is how long a gate waits for a control plane to be well.
const Timeout = 5 * time.Minute

// ControlPlane waits until the control plane does without the host: every member of etcd that is not left out is
// healthy and in sync, every API server of a master that is not left out is ready, and a majority of all members, dead
// and left-out ones counted, would remain if the one on the host stopped. An etcd of one or two members has
// no majority to spare: there it is enough that all are healthy. An etcd that kubexm does not run is left to the checks of
// the API servers.
//
// A host whose own member or API server was found not to work (c.Observed) waits for none that did not work either: to work on
// them is what makes them well, and stopping them costs nothing. Where etcd has services of its own, which change before API
// servers, nobody waits for an API server that did not work.
//
// All is asked through the host's own connection.
func ControlPlane(c *cluster.Cluster, host string) step.Step {
	return gate(c, Gate{Host: host}, c.Spec.Etcd.Type == v1alpha1.TypeKubexm)
}

// Well is ControlPlane where the member of etcd on the host goes on: the others need not be a majority.
func Well(c *cluster.Cluster, host string) step.Step {
	return gate(c, Gate{Host: host, Kept: true}, false)
}

// EtcdWell is Well while API servers that did not work are still to come.
func EtcdWell(c *cluster.Cluster, host string) step.Step {
	return gate(c, Gate{Host: host, Kept: true}, true)
}

func gate(c *cluster.Cluster, g Gate, apiLater bool) step.Step {
	host := g.Host
	g.LeftOut = c.Missing()
	broken := append(c.Observed.BrokenAPI(), c.Moving...) // whose member of etcd moves first
	masters := c.Masters()
	if !c.Lives() { // etcd alone has begun
		masters = nil
	}
	for _, m := range masters {
		if !slices.Contains(broken, m) || !apiLater && !slices.Contains(broken, host) {
			g.API = append(g.API, API{m, c.API(m)})
		}
	}
	if broken = c.Observed.BrokenEtcd(); slices.Contains(broken, host) {
		g.Kept = true
		g.Etcd = slices.DeleteFunc(members(c), func(m Member) bool { return slices.Contains(broken, m.Host) })
	} else {
		g.Etcd = members(c)
	}
	return step.With(g, step.Options{Timeout: Timeout})
}

// Gate is the step of ControlPlane.
type Gate struct {
	Host    string
	Etcd    []Member `json:",omitempty"` // that are waited for
	API     []API    `json:",omitempty"` // that are waited for
	LeftOut []string `json:",omitempty"` // hosts that are not
	Kept    bool     `json:",omitempty"` // no vote is lost: the member on Host is not stopped, or broken already
}

// Member is a member of etcd on a host.
type Member struct {
	Host   string
	Fresh  bool        `json:",omitempty"` // it may have to join yet: nobody waits for that
	Leaves bool        `json:",omitempty"` // it is asked, but not waited for
	Access etcd.Access `json:"-"`
}

// API is the API server of a master.
type API struct {
	Host   string
	Access kube.Access `json:"-"`
}

// members are those of an etcd that kubexm runs.
func members(c *cluster.Cluster) (all []Member) {
	if c.ExternalEtcd() {
		return nil
	}
	fresh, _ := c.Split("etcd", c.Etcd())
	for _, h := range c.EtcdHosts() {
		all = append(all, Member{h, slices.Contains(fresh, h), !c.Host(h).Is(v1alpha1.RoleEtcd) || slices.Contains(c.Leaving(), h), c.EtcdAccess(h)})
	}
	return all
}

func (g Gate) String() string { return "control plane healthy around " + g.Host }

// Precheck asks once.
func (g Gate) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	missing, hopeless := g.look(ctx, r)
	if hopeless == nil && len(missing) == 0 {
		return nil, nil
	}
	if hopeless != nil {
		missing = []string{hopeless.Error()}
	}
	return &step.Change{
		Diff: "wait: " + strings.Join(missing, "\nwait: "), Verify: step.Verified,
		Run: func(ctx context.Context) error { return g.wait(ctx, r) },
	}, nil
}

// wait asks until all is well, waiting cannot help, or the time is over.
func (g Gate) wait(ctx context.Context, r *runner.Runner) error {
	var seen []string
	for pause := 200 * time.Millisecond; ; pause = min(pause*3/2, 2*time.Second) {
		missing, hopeless := g.look(ctx, r)
		switch {
		case ctx.Err() != nil && seen != nil: // what was not answered now only says that time ran out
		case hopeless != nil:
			return hopeless
		case len(missing) == 0:
			return nil
		default:
			seen = missing
			step.Tell(ctx, "waiting: "+seen[0])
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			err := fmt.Errorf("the control plane is not healthy: %s", strings.Join(seen, "; "))
			return fault.Advise(err, "see why on those hosts (journalctl -u etcd, crictl ps -a); once they are healthy, run again: it continues where it stopped")
		}
	}
}

// look returns what is to be waited for, and the error that no waiting makes right.
func (g Gate) look(ctx context.Context, r *runner.Runner) (missing []string, hopeless error) {
	var answers []error
	var servers sync.WaitGroup
	servers.Go(func() { answers = g.askAPI(ctx, r) })
	if len(g.Etcd) > 0 {
		missing, hopeless = g.judge(etcd.Survey(ctx, through(r, g.Etcd)))
	}
	servers.Wait()
	for i, err := range answers {
		if err != nil {
			missing = append(missing, "kube-apiserver on "+g.API[i].Host+": "+human.Line(err.Error()))
		}
	}
	return missing, hopeless
}

// through is how to ask members from a host.
func through(r *runner.Runner, members []Member) []etcd.Access {
	all := make([]etcd.Access, len(members))
	for i, m := range members {
		all[i] = m.Access
		all[i].Dial = r.Dial
	}
	return all
}

// askAPI asks all API servers side by side.
func (g Gate) askAPI(ctx context.Context, r *runner.Runner) []error {
	answers := make([]error, len(g.API))
	var all sync.WaitGroup
	for i, a := range g.API {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, etcd.Patience)
			defer cancel()
			client, err := step.Kube(r, a.Access)
			if err == nil {
				err = client.APIReady(ctx)
			}
			answers[i] = err
		})
	}
	all.Wait()
	return answers
}

// judge finds what is missing to a healthy etcd that can do without the member on the host.
func (g Gate) judge(view etcd.View) (missing []string, hopeless error) {
	var own *etcd.State
	hopes := 0 // votes that may come back
	for _, m := range g.Etcd {
		s := view.Member(m.Access.Endpoint, m.Host)
		if m.Host == g.Host {
			own = s
		}
		why := wrong(s, view.Errs[m.Access.Endpoint])
		if why == nil {
			continue
		}
		if s == nil && m.Fresh && len(view.Members) > 0 || m.Leaves {
			continue
		}
		missing = append(missing, "etcd on "+m.Host+": "+human.Line(why.Error()))
		if m.Host != g.Host && s != nil && s.Err != nil && !s.Member.Learner {
			hopes++
		}
	}
	for _, s := range view.Members {
		if alarms := s.Alarms(); alarms != nil {
			err := fmt.Errorf("etcd has raised alarm %s", strings.Join(alarms, ", "))
			return missing, fault.Advise(err, "NOSPACE: kubexm etcd defrag; CORRUPT: replace the member whose data is other than that of the rest (etcdctl endpoint hashkv --cluster), and run etcdctl alarm disarm; then run again")
		}
	}
	healthy, total, majority := view.Quorum()
	if g.Kept || own == nil || own.Member.Learner {
		return missing, nil
	}
	if own.Err == nil {
		healthy--
	}
	dead := g.dead(view)
	if (total > 2 || dead != nil) && healthy+hopes < majority {
		err := fmt.Errorf("etcd would lose its majority: without the member on %s only %d of %d would work (broken: %s)", g.Host, healthy, total, strings.Join(dead, ", "))
		return missing, fault.Advise(err, "bring up what is broken, and run again without leaving it out; a machine that is gone for good must be "+
			"removed from the members first: etcdctl member remove")
	}
	return missing, nil
}

// wrong says why a member is to be waited for.
func wrong(s *etcd.State, err error) error {
	switch {
	case s == nil && err == nil:
		return errors.New("it is not a member")
	case s == nil:
		return err
	case s.Err == nil && !s.InSync():
		return fmt.Errorf("it is %d log entries behind", s.Behind)
	}
	return s.Err
}

// dead names the members that do not work and that nobody waits for.
func (g Gate) dead(view etcd.View) (names []string) {
	for _, s := range view.Members {
		awaited := slices.ContainsFunc(g.Etcd, func(m Member) bool {
			return !m.Leaves && (slices.Contains(s.ClientURLs, m.Access.Endpoint) || m.Host == s.Name)
		})
		if !awaited && s.Err != nil && !s.Member.Learner {
			name := s.Name
			if name == "" {
				name = strings.Join(s.PeerURLs, ",")
			}
			names = append(names, name)
		}
	}
	return names
}
