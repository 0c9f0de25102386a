package app

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/step/host"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// turn is one of several runs of an apply.
type turn struct {
	Request
	says string
}

// shift is what hosts were, and what they are to be.
type shift struct{ was, is *v1alpha1.Cluster }

// ahead finds the runs of an apply that one run cannot do; nil: it can. Hosts that change in a way that their machines cannot follow in place, like a worker
// that becomes a master, or one of several masters that gets another address, leave the cluster and join it again, one after the other: new masters
// first, those that are none any more last. The others are what they were until it is their turn.
func (w *work) ahead(ctx context.Context) (turns []turn, err error) {
	applied, err := w.records.Applied()
	if err != nil || applied == nil || len(applied.Resolved) == 0 {
		return nil, err
	}
	changes, err1 := w.changes()
	left, err2 := w.records.Departed()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := w.findBack(ctx, left); err != nil {
		return nil, err
	}
	s := shift{is: w.config}
	if s.was, err = config.Recorded(applied.Resolved); err != nil {
		return nil, err
	}
	hosts := s.rejoin(changes, left)
	finished, err := w.finished(applied, s.was)
	if err != nil {
		return nil, err
	}
	w.was, w.moves = finished, moves(finished, s.is, slices.Concat(hosts...))
	path := config.Path(config.ReleaseOf(&finished.Spec), config.ReleaseOf(&s.is.Spec)) // where a run was cut off, some have the release before
	if err := passable(finished.Spec.Kubernetes.Version, path); err != nil {
		return nil, err
	}
	switch {
	case hosts != nil && (len(path) > 1 || config.Minor(finished.Spec.Kubernetes.Version) != config.Minor(s.is.Spec.Kubernetes.Version)):
		err = fmt.Errorf("%s must leave the cluster and join it again, and the release changes to %s, too", strings.Join(slices.Concat(hosts...), ", "), path[len(path)-1])
		return nil, fault.Exit(fault.Advise(err, "one after the other: put the versions back, apply, and then change them"), fault.ExitUsage)
	case hosts == nil && len(path) < 2:
		return nil, nil
	}
	if err := w.checkUnchanged(func(c config.Change) bool { return c.Policy.Way == config.Refuse }); err != nil {
		return nil, err
	}
	text := w.given
	if text == nil {
		if text, err = os.ReadFile(w.file); err != nil {
			return nil, err
		}
	}
	if hosts == nil {
		return w.releases(path, text)
	}
	var stay []v1alpha1.Host
	if !w.Force {
		if stay, err = s.stay(applied.Given); err != nil {
			return nil, err
		}
	}
	return w.turns(s, hosts, stay, text)
}

// passable refuses a way on which a minor version is left out, as this kubexm knows no release of it.
func passable(at string, path []config.Release) error {
	for _, r := range path {
		if next := config.Minor(at) + 1; config.Minor(r.Kubernetes) > next {
			err := fmt.Errorf("between Kubernetes %s and %s comes 1.%d, of which this kubexm knows no release", at, r.Kubernetes, next)
			return fault.Exit(fault.Advise(err, fmt.Sprintf("take a newer kubexm, or go there first, by a patch release that you know of: spec.kubernetes.version: v1.%d.0", next)), fault.ExitUsage)
		}
		at = r.Kubernetes
	}
	return nil
}

// releases are the runs in which a cluster goes through releases to the one that its configuration, of which this is the text, has.
func (w *work) releases(path []config.Release, text []byte) (turns []turn, err error) {
	for _, r := range path[:len(path)-1] {
		through := w.Request
		through.Resume, through.Edit, through.pass, through.goal = false, nil, true, path[len(path)-1]
		edit := config.Edit{Set: map[string]string{"spec.kubernetes.version": r.Kubernetes}}
		if r.Etcd != "" {
			edit.Set["spec.etcd.version"] = r.Etcd
		}
		if through.in, err = w.with(edit, text); err != nil {
			return nil, err
		}
		if turns == nil && w.found != nil { // the file has the goal from the beginning: whatever becomes of this, kubexm apply goes on to it
			through.in.back, through.in.found, through.in.final = w.back, w.found, w.given
		}
		conf, _, err := config.Parse(w.file, through.in.given)
		if err != nil {
			err = fmt.Errorf("the cluster passes through %s, which does not take this configuration:\n%w", r, err)
			return nil, fault.Exit(fault.Advise(err, "leave out what only newer versions have, upgrade, and add it afterwards"), fault.ExitUsage)
		}
		for i := range turns {
			turns[i].later = append(turns[i].later, conf)
		}
		turns = append(turns, turn{through, "on the way: " + r.String()})
	}
	for i := range turns {
		turns[i].later = append(turns[i].later, w.config)
	}
	last := w.Request
	last.Resume = false
	return append(turns, turn{last, path[len(path)-1].String()}), nil
}

// turns are the runs in which hosts leave and join again, group by group, while others stay.
func (w *work) turns(s shift, hosts [][]string, stay []v1alpha1.Host, text []byte) (turns []turn, err error) {
	for i, group := range hosts {
		edit := s.until(slices.Concat(hosts[i+1:]...))
		edit.Add = stay
		names, without, leave, join := strings.Join(group, ", "), edit, w.Request, w.Request
		without.Remove = group
		leave.Resume, leave.Edit, leave.At = false, nil, map[string]string{}
		for _, h := range group {
			leave.At[h] = hostIn(s.is, h).Address
		}
		if leave.in, err = w.with(without, text); err != nil {
			return nil, err
		}
		if _, _, err := config.Parse(w.file, leave.in.given); err != nil {
			err = fmt.Errorf("%s must leave the cluster and join it again, but the cluster cannot do without:\n%w", names, err)
			return nil, fault.Exit(fault.Advise(err, "add another host that does the same before, and remove it afterwards"), fault.ExitUsage)
		}
		if join.Resume, join.Replace = false, nil; i < len(hosts)-1 {
			join.Edit = nil
			if join.in, err = w.with(edit, text); err != nil {
				return nil, err
			}
		}
		turns = append(turns, turn{leave, names + ": leaving the cluster, to join it again"}, turn{join, names + ": joining the cluster again"})
	}
	return turns, nil
}

// finished is the configuration that the last run which ended well applied: machines that a later one began to move may still need their former
// addresses.
func (w *work) finished(applied *store.Revision, was *v1alpha1.Cluster) (*v1alpha1.Cluster, error) {
	if applied.Run.Result == "ok" {
		return was, nil
	}
	history, err := w.records.History()
	for _, r := range slices.Backward(history) {
		if r.Run.Result == "ok" && len(r.Resolved) > 0 {
			return config.Recorded(r.Resolved)
		}
	}
	return was, err
}

// until is an edit that leaves hosts what they are until it is their turn.
func (s shift) until(hosts []string) config.Edit {
	e := config.Edit{Roles: map[string][]v1alpha1.Role{}, Move: map[string]config.Addresses{}}
	for _, h := range hosts {
		before, now := hostIn(s.was, h), hostIn(s.is, h)
		if !slices.Equal(before.Roles, now.Roles) {
			e.Roles[h] = before.Roles
		}
		if before.InternalAddress != now.InternalAddress {
			e.Move[h] = config.Addresses{Address: now.Address, Internal: before.InternalAddress}
		}
	}
	return e
}

// moves are the hosts of the control plane that change their addresses, some of which leave the cluster for it.
func moves(was, is *v1alpha1.Cluster, leave []string) map[string]move {
	all := map[string]move{}
	for _, h := range was.Spec.Hosts {
		if now := hostIn(is, h.Name); now != nil && now.IP() != h.IP() && (h.Is(v1alpha1.RoleMaster) || h.Is(v1alpha1.RoleEtcd)) {
			all[h.Name] = move{host.Moved{Former: h.IP(), Now: now.IP()}, !slices.Contains(leave, h.Name)}
		}
	}
	return all
}

// stay are the hosts of the control plane that the configuration has no more. They go last, as others may take their places. Where the text that had
// them was not kept, it is not known how to log in to them: they go first.
func (s shift) stay(given []byte) (hosts []v1alpha1.Host, err error) {
	if len(given) == 0 {
		return nil, nil
	}
	was, _, err := config.ParseRecorded("the configuration that was applied", given)
	if err != nil {
		return nil, err
	}
	for _, h := range was.Spec.Hosts {
		if hostIn(s.is, h.Name) == nil && (h.Is(v1alpha1.RoleMaster) || h.Is(v1alpha1.RoleEtcd)) {
			hosts = append(hosts, h)
		}
	}
	return hosts, nil
}

// with is the document with an edit made in its text, which stays where it is.
func (d document) with(e config.Edit, text []byte) (*document, error) {
	given, err := e.Apply(text)
	return &document{file: d.file, given: given}, err
}

// rejoin finds the hosts that leave a cluster and join it again, in their order, those too that a run which was cut off has begun to take off it.
// They are at the beginning, together.
func (s shift) rejoin(changes []config.Change, left map[string]store.Departed) (hosts [][]string) {
	var back, changed []string
	for name, d := range left {
		if hostIn(s.is, name) != nil && !d.Lost {
			back = append(back, name)
		}
	}
	for _, c := range changes {
		if c.Policy.Way == config.Rejoin && !slices.Contains(append(back, changed...), c.Host) {
			changed = append(changed, c.Host)
		}
	}
	if slices.Sort(back); back != nil {
		hosts = append(hosts, back)
	}
	slices.SortFunc(changed, func(x, y string) int { return cmp.Or(cmp.Compare(s.late(x), s.late(y)), cmp.Compare(x, y)) })
	for _, h := range changed {
		hosts = append(hosts, []string{h})
	}
	return hosts
}

// late is how long a host waits for others until it leaves.
func (s shift) late(host string) int {
	switch master, before := hostIn(s.is, host).Is(v1alpha1.RoleMaster), hostIn(s.was, host).Is(v1alpha1.RoleMaster); {
	case master && !before:
		return 0
	case before && !master:
		return 2
	}
	return 1
}

// hostIn finds a host of a configuration; nil: it has none of that name.
func hostIn(c *v1alpha1.Cluster, name string) *v1alpha1.Host {
	i := slices.IndexFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Spec.Hosts[i]
}

// inTurns makes several runs, one after the other. Of a plan that was saved it is the first one alone.
func (a *App) inTurns(ctx context.Context, turns []turn, o Observer, saved *Proposal) (res *Result, err error) {
	var away time.Duration
	var last *Result
	for i, t := range turns {
		u := a.use(t.Request, o)
		u.notice("%s (run %d of %d)", t.says, i+1, len(turns))
		w, err := a.begin(ctx, t.Request, o)
		if err != nil {
			return nil, err
		}
		res, err = w.apply(ctx, saved, last)
		if res != nil {
			away = max(away, res.Away)
			res.Away = away
		}
		if err != nil || t.DryRun {
			return res, err
		}
		if saved != nil {
			u.notice("this was run 1 of %d, which the plan was of; the others follow with: kubexm apply%s", len(turns), u.Which())
			return res, nil
		}
		last = res
	}
	return res, nil
}

// undisturbed makes sure that what the run before has applied is still what is applied, by the records and in the cluster itself, which another control machine
// may have changed: this run does not know of what others did in between.
func (s *site) undisturbed(ctx context.Context, last *Result) error {
	if last == nil {
		return nil
	}
	now, err := s.records.Applied()
	if err != nil {
		return err
	}
	by := "another run, from another control machine,"
	if now == nil || now.Run.ID == last.Run {
		was, err1 := config.ReadKept(last.kept.Data())
		is, err2 := s.keptNow(ctx)
		if err := errors.Join(err1, err2); err != nil || was.Text == nil || bytes.Equal(is.Text, was.Text) {
			return err
		}
	} else {
		by = "another run, " + now.Run.ID + ","
	}
	err = fmt.Errorf("%s has changed cluster %s meanwhile", by, s.config.Metadata.Name)
	return fault.Exit(fault.Advise(err, "look at the configuration, and run kubexm apply"+s.Which()+" again: it finds what is left to do"), fault.ExitFailed)
}
