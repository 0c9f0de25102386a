package app_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	kubexm "github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// accident is what befalls a host of a cluster, whose configuration it is that of before and of afterwards.
type accident struct {
	*world
	*rand.Rand
	host, config string
	lost         map[string]bool // IDs of machines: they are not to come back
}

// twice asks for something that is killed the first time.
func (a *accident) twice(ask func(a *attempt) error) {
	a.Helper()
	first := a.attempt(a.Context())
	killed := 1 + a.IntN(80)
	first.killAt(killed)
	if ask(first) == nil {
		return
	}
	a.Logf("killed at node %d", killed)
	if err := ask(a.attempt(a.Context())); err != nil {
		a.Fatal(err)
	}
}

func (a *accident) applied() {
	a.Helper()
	a.configure(a.config)
	a.twice(func(a *attempt) error { _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); return err })
}

func (a *accident) removed(force bool) func(*attempt) error {
	return func(run *attempt) error {
		run.Force, run.Edit = force, &kubexm.Edit{Remove: []string{a.host}}
		_, err := run.App.Apply(run.ctx, run.Request, run.Observer, nil)
		return err
	}
}

func (a *accident) id() string {
	id, _ := a.hosts[a.host].Get("/etc/machine-id")
	return strings.TrimSpace(id)
}

// gone is a machine that is given up.
func (a *accident) gone() (back func()) {
	id, returns := a.id(), a.away(a.host)
	a.twice(a.removed(true))
	a.lost[id] = true
	return func() { returns(); delete(a.lost, id) }
}

// another is a machine that takes the place of one that burns.
func (a *accident) another() {
	if a.hosts[a.host] != nil {
		a.lost[a.id()] = true
		a.burn(a.host)
	}
	a.fresh(a.host, fmt.Sprintf("%032x", a.Uint64()))
}

var accidents = map[string]func(*accident){
	"another under the name of a lost one": func(a *accident) { a.gone(); a.another(); a.applied() },
	"back uncleaned":                       func(a *accident) { a.gone()(); a.applied() },
	"back, deleted and added":              func(a *accident) { a.gone()(); a.twice(a.removed(false)); a.applied() },
	"back before it was given up": func(a *accident) {
		back := a.away(a.host)
		first := a.attempt(a.Context())
		first.killAt(1 + a.IntN(30))
		_ = a.removed(true)(first)
		back()
		a.applied()
	},
	"back uncleaned, without power": func(a *accident) {
		a.gone()()
		h, run := a.hosts[a.host], a.attempt(a.Context())
		a.configure(a.config)
		h.Cut = &runnertest.Kill{After: a.Int64N(300), Then: func() { a.lose(a.host); run.hangUp() }}
		_, err := run.App.Apply(run.ctx, run.Request, run.Observer, nil)
		a.Logf("without power: %v", err)
		h.Reboot()
		a.applied()
	},
	"replaced": func(a *accident) {
		a.another()
		a.twice(func(run *attempt) error {
			_, err := run.App.ReplaceNode(run.ctx, run.Request, run.Observer, a.host, kubexm.Addresses{})
			return err
		})
	},
	"another address": func(a *accident) {
		is := a.at(a.host)
		to := strings.Replace(addresses[a.host], "10.0.0.1", "10.0.0.6", 1)
		if is == to {
			to = addresses[a.host]
		}
		a.moveTo(a.host, to)
		a.config = strings.Replace(a.config, is+",", to+",", 1)
		a.applied()
	},
	"taken back": func(a *accident) {
		run := a.attempt(a.Context())
		run.killAt(1 + a.IntN(120))
		_ = a.removed(false)(run)
		a.applied()
	},
}

// TestAccidents lets each accident befall a host of a cluster, and kills kubexm meanwhile.
func TestAccidents(t *testing.T) {
	accidental(t, 1, false)
}

// TestFaultsAccidents does so more often, and lets several happen to a cluster, one after the other.
func TestFaultsAccidents(t *testing.T) {
	accidental(t, 4, false)
	accidental(t, 8, true)
}

func accidental(t *testing.T, times int, many bool) {
	all := slices.Sorted(maps.Keys(accidents))
	for i := range times {
		for at, what := range all {
			t.Run(fmt.Sprintf("%s/%d/%t", what, i, many), func(t *testing.T) {
				t.Parallel()
				t.Logf("accidents of -seed=%d", *seed)
				r := rand.New(rand.NewPCG(*seed, uint64(i*len(all)+at)))
				befalls := []string{what}
				for many && len(befalls) < 5 {
					befalls = append(befalls, all[r.IntN(len(all))])
				}
				bubble(t, func(t *testing.T) { befallen(t, r, befalls) })
			})
		}
	}
}

func befallen(t *testing.T, r *rand.Rand, befalls []string) {
	name := []string{"row7", "row9", "row22"}[r.IntN(3)]
	config := joinedBy(row(t, name), "node5 worker")
	w := newWorld(t, config, "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	a := &accident{world: w, Rand: r, config: config, lost: map[string]bool{}}
	for _, what := range befalls {
		a.host = fmt.Sprintf("node%d", 1+r.IntN(4))
		t.Logf("%s %s: %s", name, a.host, what)
		accidents[what](a)
		w.settled()
		w.verified()
		objects := w.everything()
		for id := range a.lost {
			if !strings.Contains(objects, id) {
				t.Errorf("machine %s may come back", id)
			}
		}
		if strings.Contains(objects, "kubexm-lost-machines") != (len(a.lost) > 0) || strings.Contains(objects, "unschedulable: true") {
			t.Errorf("%d machines are lost, and the cluster has\n%s", len(a.lost), objects)
		}
		if t.Failed() {
			return
		}
	}
}
