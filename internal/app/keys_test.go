package app_test

import (
	"errors"
	"os"
	"path/filepath"
)

// brokenKey makes a cluster and damages the key of its authority.
func brokenKey(w *world, a *attempt) {
	made(with("", ""))(w, a)
	breakKey(w)
}

func breakKey(w *world) {
	path := filepath.Join(w.dir, "row1", "certs", "kubernetes", "ca.key")
	w.must(os.MkdirAll(filepath.Dir(path), 0o700))
	w.must(os.WriteFile(path, []byte("rubbish"), 0o600))
}

// keyTroubles are troubles with the keys of a cluster: lost, broken, recreated, or not seen to be there.
var keyTroubles = map[string]trouble{
	"delete by force after a build elsewhere": {prep: func(w *world, a *attempt) {
		made(with("", ""))(w, a)
		a.Workdir, a.Force = w.TempDir(), true
		_, err := a.App.Build(a.ctx, a.Request, a.Observer)
		w.must(err)
	}, run: func(a *attempt) error {
		refused := remove(a)
		a.must(os.RemoveAll(filepath.Join(a.Workdir, "row1", "certs"))) // as is advised
		a.must(remove(a))
		if err := isGone(a, "node1", "node2", "node3"); !errors.Is(err, errGone) {
			return err
		}
		return refused
	}},
	"delete by force another's": {prep: func(w *world, a *attempt) {
		w.hosts["node2"].Put("/var/lib/kubexm/env", "cluster=other\n", 0o644)
		a.Force = true
	}, run: remove},
	"plan elsewhere": {prep: func(w *world, a *attempt) { made(with("", ""))(w, a); a.Workdir = w.TempDir() }, run: func(a *attempt) error {
		_, err := a.App.Plan(a.ctx, a.Request, a.Observer, "create")
		if _, made := os.Stat(filepath.Join(a.Workdir, "row1", "certs")); made == nil {
			return errors.New("keys were made for the cluster of another")
		}
		return err
	}},
	"key broken":             {prep: brokenKey},
	"key broken, plan":       {prep: brokenKey, run: func(a *attempt) error { _, err := a.App.Plan(a.ctx, a.Request, a.Observer, "create"); return err }},
	"key broken, build":      {prep: brokenKey, run: func(a *attempt) error { _, err := a.App.Build(a.ctx, a.Request, a.Observer); return err }},
	"key broken, no cluster": {prep: func(w *world, _ *attempt) { breakKey(w) }},
	"delete without a host, odd directory": {
		prep: func(w *world, a *attempt) {
			a.Workdir = filepath.Join(w.TempDir(), "a[1]")
			w.must(os.MkdirAll(a.Workdir, 0o700))
			w.must(os.Symlink(filled(), filepath.Join(a.Workdir, "packages")))
			if _, err := a.create(); err != nil {
				w.Fatal(err)
			}
			w.hosts["node3"].SetDown(true)
			a.Notices = nil
		}, run: remove,
	},
}
