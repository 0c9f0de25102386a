package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// leaver is a host that the configuration has no more, as it was configured. It stays one until a run has cleaned it, or has given it up.
type leaver struct {
	v1alpha1.Host
	given []byte // the configuration that it is from
}

// findLeavers finds the hosts that the applied configuration has and the current one has not, and those that an earlier run has not finished with.
func (w *work) findLeavers(ctx context.Context) error {
	applied, err1 := w.records.Applied()
	left, err2 := w.records.Departed()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	from := map[string][]byte{} // text, by host
	for name, d := range left {
		if !d.Lost || w.Edit != nil && slices.Contains(w.Edit.Remove, name) { // one that is back is cleaned when it is asked for
			from[name] = d.Given
		}
	}
	changes, err := w.changes()
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.Gone() && from[c.Host] == nil && applied != nil {
			from[c.Host] = applied.Given
		}
	}
	for _, h := range w.config.Spec.Hosts {
		delete(from, h.Name) // it is back
	}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		h, err := w.asConfigured(ctx, name, from[name])
		if err != nil {
			return err
		}
		h.Address = cmp.Or(w.At[name], h.Address)
		w.leaves = append(w.leaves, leaver{*h, from[name]})
	}
	return nil
}

// asConfigured finds a host in the text of an earlier configuration.
func (w *work) asConfigured(ctx context.Context, name string, given []byte) (*v1alpha1.Host, error) {
	conf, _, err := config.ParseRecorded("configuration that had "+name, given)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(conf.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == name })
	if at < 0 {
		return nil, fault.Advise(errors.New("how to log in to host "+name+", which leaves the cluster, is not known any more"),
			"put it back into the configuration, and remove it again")
	}
	conf.Spec.Hosts = conf.Spec.Hosts[at : at+1]
	warnings, err := config.ResolveSecrets(ctx, conf, w.local)
	w.warn(warnings)
	return &conf.Spec.Hosts[0], err
}

// giveUp takes the hosts that leave from those that could not be reached. It is an error unless they may be given up.
func (s *site) giveUp(failed []*HostError) (others []*HostError, err error) {
	var refused []error
	for _, e := range failed {
		switch leaving := slices.Contains(s.cluster.Leaving(), e.Host); {
		case !leaving:
			others = append(others, e)
		case (s.Force || s.At[e.Host] != "") && isDown(e.Err):
			s.notice("warning: %v; it is given up: only what others know of it is removed", e)
		default:
			e.Err = adviseMore(e.Err, "it leaves the cluster, and cannot be cleaned; if it is gone for good: kubexm delete node "+e.Host+s.Which()+" --force")
			refused = append(refused, e)
		}
	}
	if s.Force || refused == nil {
		for _, h := range s.cluster.Lost() {
			if s.cluster.Facts[h] != nil {
				s.notice("warning: host %s is not part of the cluster any more; it is left alone, and only what others know of it is removed", h)
			}
		}
	}
	return others, errors.Join(refused...)
}

// keepLeavers notes which hosts leave, before the configuration that had them is replaced.
func (s *site) keepLeavers() error {
	known, err := s.records.Departed()
	for _, l := range s.leaves {
		if _, is := known[l.Name]; !is && err == nil {
			err = s.records.KeepDeparted(l.Name, &store.Departed{Given: l.given, Since: time.Now().UTC()})
		}
	}
	return err
}

// isLost reports whether the machine of a host that leaves was not reached: none was, or another one.
func (s *site) isLost(host string) bool {
	is, was := s.cluster.Facts[host], s.known[host]
	return slices.Contains(s.cluster.Lost(), host) && (is == nil || was != nil && is.MachineID != was.MachineID)
}

// before is what the note of a machine that was replaced has after the name of its host.
const before = " before"

// replaced are the hosts whose machines are new ones.
func (w *work) replaced(facts map[string]*runner.Facts) (hosts []string) {
	for _, h := range w.config.Spec.Hosts {
		if f := facts[h.Name]; w.exiles[h.Name+before] != "" && f != nil && f.Env["cluster"] == "" {
			hosts = append(hosts, h.Name)
		}
	}
	return hosts
}

// knowMachines compares the machines of hosts with those that kubexm has worked on. One that has changed without a word may be a mistake, or an
// attack: nothing goes on with it.
func (w *work) knowMachines(facts map[string]*runner.Facts) (err error) {
	if w.known, err = w.records.Facts(); err != nil {
		return err
	}
	left, err := w.records.Departed()
	if err != nil {
		return err
	}
	w.exiles = map[string]string{}
	for name, d := range left {
		if d.Lost && d.MachineID != "" {
			w.exiles[name] = d.MachineID
		}
	}
	var others []string
	for _, h := range w.config.Spec.Hosts {
		was, is := w.known[h.Name], facts[h.Name]
		if changed, err := w.exchanged(h.Name, was, is); err != nil || !changed {
			if err != nil {
				return err
			}
			continue
		}
		if slices.Contains(w.Replace, h.Name) {
			w.exiles[h.Name+before] = was.MachineID
			if !w.DryRun { // the facts of the new one take the place of its own
				err = errors.Join(err, w.records.KeepDeparted(h.Name+before, &store.Departed{Lost: true, MachineID: was.MachineID, Since: time.Now().UTC()}))
			}
			continue
		}
		delete(facts, h.Name) // what is known stays what it was
		others = append(others, fmt.Sprintf("host %s is another machine than before: its machine-id is %q and was %q, and it is not part of the cluster", h.Name, is.MachineID, was.MachineID))
	}
	if others == nil || err != nil {
		return err
	}
	err = errors.New(joinLines(others))
	return fault.Exit(fault.Advise(err, "if it takes the place of one that is gone for good: kubexm replace node NAME"+w.Which()+"; else check spec.hosts[].address"), fault.ExitPreflight)
}

// exchanged reports whether a host that runs have worked on is another machine now, on which kubexm has not.
func (w *work) exchanged(host string, was, is *runner.Facts) (bool, error) {
	if was == nil || is == nil || is.Env["cluster"] == w.config.Metadata.Name || was.MachineID == is.MachineID && is.MachineID != "" {
		return false, nil
	}
	cleaned, err := w.records.touched()
	done, known := cleaned[host]
	return known && !done, err
}

// fenced are the machines that are not to come back: those that were given up before, and those that are now.
func (w *work) fenced(facts map[string]*runner.Facts) (machines []string) {
	back := map[string]bool{}
	for _, h := range w.machines() { // those that leave are cleaned
		if f := facts[h.Name]; f != nil {
			back[f.MachineID] = true
		}
	}
	gone := slices.Collect(maps.Values(w.exiles))
	for _, l := range w.leaves {
		if is := w.known[l.Name]; is != nil && (facts[l.Name] == nil || facts[l.Name].MachineID != is.MachineID) {
			gone = append(gone, is.MachineID)
		}
	}
	for _, id := range gone {
		if id != "" && !back[id] && !slices.Contains(machines, id) {
			machines = append(machines, id)
		}
	}
	slices.Sort(machines)
	return machines
}

// forgetKey forgets the host key of a machine that another one has taken the place of, or that is gone.
func (w *work) forgetKey(h *v1alpha1.Host) error {
	if err := connector.Forget(w.knownHosts(), w.fleet().toHost(h, w.knownHosts()).Endpoint()); err != nil {
		return durable.Advise(fmt.Errorf("forgetting the host key of %s: %w", h.Name, err))
	}
	return nil
}

// farewell notes that the hosts that were to leave have left, or are lost, and that others are back.
func (s *site) farewell() error {
	known, err := s.records.Departed()
	keep := func(name string, is *store.Departed) {
		if err == nil {
			err = s.records.KeepDeparted(name, is)
		}
	}
	for _, l := range s.leaves {
		if err == nil {
			err = s.records.KeepFacts(map[string]*runner.Facts{l.Name: nil})
		}
		if !s.isLost(l.Name) {
			keep(l.Name, nil)
			continue
		}
		is := &store.Departed{Given: l.given, Lost: true, Since: time.Now().UTC()}
		if f := s.known[l.Name]; f != nil {
			is.MachineID = f.MachineID
		}
		keep(l.Name, is)
		if err == nil {
			err = s.forgetKey(&l.Host)
		}
	}
	for name, d := range known {
		if d.Lost && d.MachineID != "" && !slices.Contains(s.cluster.Fenced, d.MachineID) && s.exiles[name] != "" { // it is part of the cluster again
			keep(name, nil)
		}
	}
	return err
}
