package app_test

import (
	"flag"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestEditsCombined draws two configurations, and leads a cluster from one to the other, and back. By default it does so
// a few times; -rapid.checks says how often, -rapid.seed which.
func TestEditsCombined(t *testing.T) {
	t.Run("images come from a registry that is renamed", func(t *testing.T) {
		bubble(t, func(t *testing.T) { leads(t, "registry", []string{"releases"}, []string{"private registry"}) })
	})
	t.Run("crio", func(t *testing.T) {
		bubble(t, func(t *testing.T) { leads(t, "crio", []string{"release of CRI-O"}, []string{"registry mirrors"}) })
	})
	for name, to := range map[string]string{"row2": "runtime docker", "row7": "runtime cri-o", "docker": "runtime cri-o", "crio-registry": "runtime containerd"} {
		t.Run(name+" with "+to, func(t *testing.T) { bubble(t, func(t *testing.T) { leads(t, name, nil, []string{to}) }) })
	}
	combined(t, 2)
}

// TestFaultsEditsCombined does so more often.
func TestFaultsEditsCombined(t *testing.T) { combined(t, 20) }

func combined(t *testing.T, checks int) {
	fewer(t, checks)
	rapid.Check(t, func(r *rapid.T) {
		name := rapid.SampledFrom(append(all(), "registry", "harbor", "calico", "cilium", "crio", "crio-registry", "docker")).Draw(r, "row")
		draw := func(label string) []string {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(possible(row(t, name))), 0, 8, rapid.ID[string]).Draw(r, label)
		}
		was, is := draw("was"), draw("is")
		if !t.Run(name, func(t *testing.T) { bubble(t, func(t *testing.T) { leads(t, name, was, is) }) }) {
			r.Fatalf("%s differs: %q to %q", name, was, is)
		}
	})
}

// fewer lets rapid try less often than it does by default, and not look for simpler failures, unless it is told how often,
// and for how long.
func fewer(t *testing.T, checks int) {
	t.Helper()
	told := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { told[f.Name] = true })
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(checks), "rapid.shrinktime": "0s", "rapid.nofailfile": "true"} {
		f := flag.Lookup(name)
		was := f.Value.String()
		if told[name] {
			continue
		}
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Value.Set(was) }) // it was that
	}
}

// leads brings a cluster from one configuration to another, and back.
func leads(t *testing.T, name string, from, to []string) {
	was, is := changedBy(t, row(t, name), from...), changedBy(t, row(t, name), to...)
	w := newWorld(t, was, "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	for _, text := range []string{is, was} {
		chronicle := w.watched()
		w.configure(text)
		w.apply()
		chronicle.apart(t)
		w.settled()
		born(t, name, text, w.certs(name)).same(t, "as if made so", w.image())
	}
}
