package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step/host"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// move is a host of the control plane whose address changes.
type move struct {
	host.Moved
	inPlace bool // it does not leave the cluster for it
}

// inPlace are the hosts that do not leave the cluster for their new addresses.
func inPlace(moves map[string]move) (hosts []string) {
	for name, m := range moves {
		if m.inPlace {
			hosts = append(hosts, name)
		}
	}
	return hosts
}

// moving reports whether hosts of the control plane are at other addresses than the last run that ended well knew them by.
func (w *work) moving() (bool, error) {
	applied, err := w.records.Applied()
	if err != nil || applied == nil || len(applied.Resolved) == 0 {
		return false, err
	}
	was, err := config.Recorded(applied.Resolved)
	if err == nil {
		was, err = w.finished(applied, was)
	}
	return err == nil && len(moves(was, w.config, nil)) > 0, err
}

// ours reports whether a machine is known to be a host.
func (w *work) ours(known, is *runner.Facts) bool {
	return is != nil && known != nil && is.Env["cluster"] == w.config.Metadata.Name && known.MachineID == is.MachineID
}

// keepFormer lets machines of the control plane that are at other addresses already have their former ones as well, as long as the others know them by these,
// if they are so many that the cluster does not work without, or more than one. It reports whether anything was changed. Machines that are not known to be the hosts are left alone;
// leadFresh is for those that join.
func (s *site) keepFormer(ctx context.Context, facts map[string]*runner.Facts) (kept bool, err error) {
	if s.DryRun || len(s.moves) == 0 {
		return false, nil
	}
	if err := s.knowMachines(facts); err != nil { // before anything is changed
		return false, err
	}
	var lost []*HostError
	var lacking []string
	own, begun := map[string]string{}, false
	for _, h := range s.machines() {
		m, moves := s.moves[h.Name]
		f := facts[h.Name]
		if !moves || !s.ours(s.known[h.Name], f) {
			continue
		}
		begun = begun || f.HasFormer()
		switch {
		case h.IP() != m.Former && !m.inPlace || f.HasAddress(m.Former): // it has joined with the new one, or still has it
			continue
		case !f.HasAddress(m.Now):
			err := fmt.Errorf("it has neither the address %s by which the cluster knows it, nor %s", m.Former, m.Now)
			lost = append(lost, &HostError{Host: h.Name, Err: fault.Advise(err, "give the address that the machine has: spec.hosts[].internalAddress")})
		}
		own[h.Name] = m.Former
		if !slices.Contains(f.Former, m.Former) {
			lacking = append(lacking, h.Name)
		}
	}
	if !begun && !s.strands(lacking) {
		return false, nil
	}
	if lost != nil {
		return false, joined(lost)
	}
	if !begun {
		s.notice("machines have their former addresses, too, until all know the new ones")
	}
	s.own = own
	return true, s.giveFormer(ctx, func(host string) bool { return s.ours(s.known[host], facts[host]) })
}

// strands reports whether a cluster does not work, or cannot be changed, while hosts lack the addresses by which the others know them: etcd has no majority, no API server is
// left, or others are not healthy while one of them changes.
func (w *work) strands(lacking []string) bool {
	all, gone := map[v1alpha1.Role]int{}, map[v1alpha1.Role]int{}
	for _, h := range w.was.Spec.Hosts {
		for _, role := range h.Roles {
			all[role]++
			if slices.Contains(lacking, h.Name) {
				gone[role]++
			}
		}
	}
	const master, etcd = v1alpha1.RoleMaster, v1alpha1.RoleEtcd
	return len(lacking) > 1 || gone[etcd] > (all[etcd]-1)/2 || gone[master] > 0 && gone[master] == all[master]
}

// giveFormer runs the script of keepFormer on some hosts. A master on which no API server listens then is none that the others need, as long as there is another.
func (s *site) giveFormer(ctx context.Context, on func(host string) bool) error {
	var mu sync.Mutex
	var silent []*HostError
	masters := 0
	failed := s.eachConnected(ctx, 4*time.Minute, func(ctx context.Context, r *runner.Runner) error {
		if !on(r.Host) {
			return nil
		}
		r.ForgetFacts()
		says, err := r.Sh(ctx, s.formerScript(r.Host, s.own[r.Host]))
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if slices.ContainsFunc(s.machines(), func(h *v1alpha1.Host) bool { return h.Name == r.Host && h.Is(v1alpha1.RoleMaster) }) {
			masters++
		}
		if says != "" {
			silent = append(silent, &HostError{Host: r.Host, Err: errors.New(says)})
		}
		return nil
	})
	if masters > 0 && len(silent) == masters {
		return joined(append(failed, silent...))
	}
	for _, e := range silent {
		s.notice("warning: %v", e)
	}
	return joined(failed)
}

// leadFresh lets machines that are to join reach others by their former addresses, once they were found fit.
func (s *site) leadFresh(ctx context.Context) error {
	if s.own == nil {
		return nil
	}
	return s.giveFormer(ctx, func(host string) bool {
		f := s.cluster.Facts[host]
		fresh := f != nil && f.Env["cluster"] == "" && hostIn(s.config, host) != nil
		if fresh {
			f.FormerRoutes = true // which are taken away in the end
		}
		return fresh
	})
}

// formerScript is that of keepFormer on a host.
func (s *site) formerScript(on, own string) string {
	var others []host.Moved
	needed := false
	for _, h := range s.machines() {
		if m, moves := s.moves[h.Name]; moves && h.Name != on {
			others = append(others, m.Moved)
		}
		needed = needed || h.Name == on && (h.Is(v1alpha1.RoleMaster) || h.Is(v1alpha1.RoleEtcd))
	}
	return host.KeepFormer(own, others, needed, s.config.Spec.LoadBalancer.Port)
}
