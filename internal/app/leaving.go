package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
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
		case s.Force && isDown(e.Err):
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

// farewell notes that the hosts that were to leave have left, or are lost, and that others are back.
func (s *site) farewell() error {
	last, err1 := s.records.Facts()
	known, err2 := s.records.Departed()
	err := errors.Join(err1, err2)
	for _, l := range s.leaves {
		if err != nil {
			break
		}
		var is *store.Departed
		if slices.Contains(s.cluster.Lost(), l.Name) && s.cluster.Facts[l.Name] == nil {
			is = &store.Departed{Given: l.given, Lost: true, Since: time.Now().UTC()}
			if f := last[l.Name]; f != nil {
				is.MachineID = f.MachineID
			}
		}
		err = s.records.KeepDeparted(l.Name, is)
	}
	for _, h := range s.config.Spec.Hosts {
		if _, was := known[h.Name]; was && err == nil {
			err = s.records.KeepDeparted(h.Name, nil)
		}
	}
	return err
}
