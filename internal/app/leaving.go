package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
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
		if !d.Lost {
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
	asked := slices.Collect(maps.Keys(w.At)) // machines that were given up are cleaned when it is asked for, and before they join again
	if w.Edit != nil {
		asked = append(asked, w.Edit.Remove...)
	}
	for _, name := range asked {
		if d := givenUp(left, name); d != nil && from[name] == nil {
			from[name] = d.Given
		}
	}
	for _, h := range w.config.Spec.Hosts {
		delete(from, h.Name) // it is back
	}
	names := map[string][]string{} // of hosts, by text: to read one takes long where it has many
	for _, name := range slices.Sorted(maps.Keys(from)) {
		names[string(from[name])] = append(names[string(from[name])], name)
	}
	for given, names := range names {
		hosts, err := w.asConfigured(ctx, names, []byte(given))
		if err != nil {
			return err
		}
		for _, h := range hosts {
			h.Address = cmp.Or(w.At[h.Name], h.Address)
			w.leaves = append(w.leaves, leaver{h, from[h.Name]})
		}
	}
	slices.SortFunc(w.leaves, func(a, b leaver) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// asConfigured finds hosts in the text of an earlier configuration.
func (w *work) asConfigured(ctx context.Context, names []string, given []byte) ([]v1alpha1.Host, error) {
	conf, _, err := config.ParseRecorded("configuration that had "+human.Names(names, 10), given)
	if err != nil {
		return nil, err
	}
	conf.Spec.Hosts = slices.DeleteFunc(conf.Spec.Hosts, func(h v1alpha1.Host) bool { return !slices.Contains(names, h.Name) })
	for _, name := range names {
		if hostIn(conf, name) == nil {
			return nil, fault.Advise(errors.New("how to log in to host "+name+", which leaves the cluster, is not known any more"),
				"put it back into the configuration, and remove it again")
		}
	}
	warnings, err := config.ResolveSecrets(ctx, conf, w.local)
	w.warn(warnings)
	return conf.Spec.Hosts, err
}

// giveUp takes the hosts that leave from those that could not be reached. It is an error unless they may be given up.
func (s *site) giveUp(failed []*HostError) (others []*HostError, err error) {
	var refused []error
	for _, e := range failed {
		switch leaving := slices.Contains(s.cluster.Leaving(), e.Host); {
		case !leaving:
			others = append(others, e)
		case s.Force && isDown(e.Err):
			s.notice("warning: %v; it is given up: only what others know of it is removed", e)
		default:
			e.Err = adviseMore(e.Err, "it leaves the cluster, and cannot be cleaned; if it is gone for good: kubexm delete node "+e.Host+s.Which()+" --force")
			refused = append(refused, e)
		}
	}
	for _, h := range s.cluster.Lost() {
		switch {
		case s.cluster.Facts[h] == nil:
		case s.isLost(h) && !s.Force && !slices.Contains(s.Replace, h):
			advice := "if the machine is gone for good: kubexm delete node " + h + s.Which() + " --force; else check its address"
			if s.At[h] != "" {
				advice = "if it takes the place of one that is gone for good: kubexm replace node " + h + s.Which() + "; else check spec.hosts[].address"
			}
			err := fmt.Errorf("at %s, the address of host %s, is another machine than before", cmp.Or(s.At[h], s.cluster.Host(h).Address), h)
			refused = append(refused, fault.Exit(fault.Advise(err, advice), fault.ExitPreflight))
		case s.Force || refused == nil:
			s.notice("warning: host %s is not part of the cluster any more; it is left alone, and only what others know of it is removed", h)
		}
	}
	return others, errors.Join(refused...)
}

// keepLeavers notes which hosts leave, before the configuration that had them is replaced.
func (s *site) keepLeavers() error {
	known, err := s.records.Departed()
	for _, l := range s.leaves {
		was, is := known[l.Name]
		if is && was.Lost && err == nil { // where it was kept before all machines that were given up were
			err = s.records.KeepDeparted(exile(l.Name, was.MachineID), &was)
		}
		if gone := s.isLost(l.Name); (!is || was.Lost || gone && !was.Gone) && err == nil {
			err = s.records.KeepDeparted(l.Name, &store.Departed{Given: l.given, Gone: gone, Since: time.Now().UTC()})
		}
	}
	return err
}

// isLost reports whether the machine of a host that leaves was not reached: none was, or another one.
func (s *site) isLost(host string) bool {
	is, was := s.cluster.Facts[host], s.known[host]
	return slices.Contains(s.cluster.Lost(), host) && (is == nil || was != nil && is.MachineID != was.MachineID)
}

// exile names the note of a machine that was given up. That of a host that leaves has its name alone: it may do so again, with another machine.
func exile(host, machine string) string { return host + " " + machine }

// givenUp is the machine that a host lost last, with the configuration that it is from; nil: none.
func givenUp(left map[string]store.Departed, host string) (last *store.Departed) {
	for note, d := range left {
		if name, _, _ := strings.Cut(note, " "); name == host && d.Lost && d.Given != nil && (last == nil || last.Since.Before(d.Since)) {
			last = &d
		}
	}
	return last
}

// before follows the name of its host in the note of a machine that was replaced.
const before = " before"

// replaced are the hosts whose machines are new ones.
func (w *work) replaced(facts map[string]*runner.Facts) (hosts []string) {
	for _, h := range w.config.Spec.Hosts {
		was := slices.ContainsFunc(slices.Collect(maps.Keys(w.exiles)), func(note string) bool { return strings.HasPrefix(note+" ", h.Name+before+" ") })
		if f := facts[h.Name]; was && f != nil && f.Env["cluster"] == "" {
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
	for note, d := range left {
		if d.Lost && d.MachineID != "" {
			w.exiles[note] = d.MachineID
		}
	}
	if err := cmp.Or(w.knowApart(facts), w.checkCleaned(left, facts)); err != nil {
		return err
	}
	var others []string
	for _, h := range w.config.Spec.Hosts {
		was, is := w.known[h.Name], facts[h.Name]
		changed, err := w.exchanged(h.Name, was, is)
		if err != nil {
			return err
		}
		if !changed {
			continue
		}
		if slices.Contains(w.Replace, h.Name) {
			note := exile(h.Name+before, was.MachineID)
			w.exiles[note] = was.MachineID
			if !w.DryRun { // the facts of the new one take the place of its own
				if err := w.records.KeepDeparted(note, &store.Departed{Lost: true, MachineID: was.MachineID, Since: time.Now().UTC()}); err != nil {
					return err
				}
			}
			continue
		}
		delete(facts, h.Name) // what is known stays what it was
		others = append(others, fmt.Sprintf("host %s is another machine than before: its machine-id is %q and was %q, and it is not part of the cluster", h.Name, is.MachineID, was.MachineID))
	}
	if others == nil {
		return nil
	}
	err = errors.New(joinLines(others))
	return fault.Exit(fault.Advise(err, "if it takes the place of one that is gone for good: kubexm replace node NAME"+w.Which()+"; else check spec.hosts[].address"), fault.ExitPreflight)
}

// knowApart refuses machines that are known by the names of other hosts: addresses were mixed up.
func (w *work) knowApart(facts map[string]*runner.Facts) error {
	var wrong []string
	for _, h := range w.machines() {
		was, is := w.known[h.Name], facts[h.Name]
		if was == nil || is == nil || is.MachineID == "" || was.MachineID == is.MachineID || is.Env["cluster"] != w.config.Metadata.Name {
			continue
		}
		for _, other := range w.machines() {
			if f := w.known[other.Name]; other.Name != h.Name && f != nil && f.MachineID == is.MachineID {
				wrong = append(wrong, fmt.Sprintf("at %s, the address of host %s, is the machine of host %s", cmp.Or(w.At[h.Name], h.Address), h.Name, other.Name))
			}
		}
	}
	if wrong == nil {
		return nil
	}
	return fault.Exit(fault.Advise(errors.New(joinLines(wrong)), "correct spec.hosts[].address"), fault.ExitPreflight)
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

// unfenced reports whether a machine that was given up is a host again.
func (w *work) unfenced(facts map[string]*runner.Facts) bool {
	exiles := slices.Collect(maps.Values(w.exiles))
	return slices.ContainsFunc(w.config.Spec.Hosts, func(h v1alpha1.Host) bool {
		f := facts[h.Name]
		return f != nil && slices.Contains(exiles, f.MachineID)
	})
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
	forget := func(name string) {
		if err == nil {
			err = s.records.KeepFacts(map[string]*runner.Facts{name: nil})
		}
	}
	for _, l := range s.leaves {
		lost, was := s.isLost(l.Name), s.known[l.Name]
		other := was != nil && was.MachineID != s.cluster.FactsOf(l.Name).MachineID // than the one that is here, if any is
		if other || lost && givenUp(known, l.Name) == nil {
			is := &store.Departed{Given: l.given, Lost: true, Since: time.Now().UTC()}
			if was != nil {
				is.MachineID = was.MachineID
			}
			keep(exile(l.Name, is.MachineID), is)
		}
		if !lost {
			keep(exile(l.Name, ""), nil)
		}
		keep(l.Name, nil)
		forget(l.Name) // only now: its ID is in them
		if lost && err == nil {
			err = s.forgetKey(&l.Host)
		}
	}
	for note, d := range known {
		if !d.Lost && hostIn(s.config, note) != nil && !slices.Contains(s.cluster.Missing(), note) { // it has joined again
			keep(note, nil)
		}
		if d.Lost && d.MachineID != "" && !slices.Contains(s.cluster.Fenced, d.MachineID) && s.exiles[note] != "" { // it is clean, or part of the cluster again
			keep(note, nil)
		}
	}
	return err
}
