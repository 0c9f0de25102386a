package app_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/runner"
)

// system is what row3 configures of the operating system.
var system = regexp.MustCompile(`(?m)^  (system|extra): .*\n?`)

// TestPruned takes settings, services and packages out of the configuration of a cluster that lives. What is left is
// what a cluster without them would have.
func TestPruned(t *testing.T) {
	with := smaller(row(t, "row3"))
	without := system.ReplaceAllString(with, "")
	e := ended(t, "row3", without)
	var plain, before map[string][]string
	bubble(t, func(t *testing.T) {
		w := e.again(t, "row3")
		before = w.state()
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		plain = w.state()
	})
	bubble(t, func(t *testing.T) {
		w := e.again(t, "row3")
		w.configure(with)
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.configure(without)
		_, err = w.attempt(t.Context()).create()
		w.must(err)
		text := func(lines []string) string { return joined.ReplaceAllString(strings.Join(lines, "\n"), "$1") }
		for h, want := range plain {
			same(t, h, text(want), text(w.state()[h]))
		}
		res, err := w.attempt(t.Context()).create()
		if err != nil || res.Summary.OK != res.Summary.Total {
			t.Errorf("again: %+v, %v", res, err)
		}
		_, err = w.attempt(t.Context()).delete()
		w.must(err)
		for h, want := range before {
			same(t, h+" after delete", text(want), text(w.state()[h]))
		}
	})
}

// TestEarlierRelease has hosts without an inventory: all that their ledgers list is wanted.
func TestEarlierRelease(t *testing.T) {
	for _, name := range []string{"row1", "row2", "row3", "row7", "registry", "harbor", "calico"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, name), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				for _, h := range w.hosts {
					h.Remove(runner.InventoryPath)
				}
				a := w.attempt(t.Context())
				_, err = a.create()
				w.must(err)
				changed := slices.DeleteFunc(a.Events, func(ev engine.Event) bool {
					return ev.Status != engine.Changed || strings.Contains(string(ev.Node), "/prepare/record@")
				})
				for _, ev := range changed {
					t.Errorf("%s:\n%s", ev.Node, ev.Diff)
				}
			})
		})
	}
}
