package app_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/step"
)

// unseen takes all hosts of a cluster away.
func unseen(w *world) {
	for _, h := range w.hosts {
		h.SetDown(true)
	}
}

// identityTroubles are troubles with clusters that may still run where nobody sees them.
var identityTroubles = map[string]trouble{
	"delete by force without any host": {prep: func(w *world, a *attempt) {
		made(with("", ""))(w, a)
		unseen(w)
		a.Force = true
	}, run: remove, after: func(t *testing.T, w *world, _ *attempt) {
		if _, err := os.Stat(filepath.Join(w.dir, "row1", "certs", "kubernetes", "ca.key")); err != nil {
			t.Errorf("the keys are gone, the cluster is not: %v", err)
		}
	}},
	"delete by force without any host, confirmed": {prep: func(w *world, a *attempt) {
		made(with("", ""))(w, a)
		unseen(w)
		a.Force = true
		a.MayForget = func(_ context.Context, cluster, why string) error { a.Notice(cluster + "? " + why); return nil }
	}, run: func(a *attempt) error {
		if err := remove(a); err != nil {
			return err
		}
		for _, f := range []string{"certs/id", "certs/kubernetes/ca.key", "admin.conf", "cluster.yaml"} {
			if _, err := os.Stat(filepath.Join(a.Workdir, "row1", "archive", "1", f)); err != nil {
				return err
			}
		}
		return isGone(a)
	}},
	"authority lost": {prep: func(w *world, a *attempt) {
		made(with("", ""))(w, a)
		w.must(os.RemoveAll(filepath.Join(w.dir, "row1", "certs", "kubernetes")))
	}},
}

// TestPlanningWritesNoKeys plans a cluster that was never made: nothing is left behind, and nothing hinders the next plan.
func TestPlanningWritesNoKeys(t *testing.T) {
	for _, name := range []string{"row1", "row3", "row22-kubexm"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, name), "")
				for range 2 {
					a := w.attempt(t.Context())
					a.DryRun = true
					_, err := a.create()
					w.must(err)
					a = w.attempt(t.Context())
					_, err = a.App.Plan(a.ctx, a.Request, a.Observer, "create")
					w.must(err)
				}
				if files, err := filepath.Glob(filepath.Join(w.dir, "*", "certs*")); len(files) > 0 || err != nil {
					t.Errorf("there are %s, %v", files, err)
				}
			})
		})
	}
}

// TestPlanTellsNoDigest looks in a plan, and in that which is kept of a run, for plain digests of the files that only root may read.
func TestPlanTellsNoDigest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, with("spec:\n", "spec:\n  registry: {auth: {docker.io: {username: me, password: hunter2}}}\n")(row(t, "row3")), "")
		a := w.attempt(t.Context())
		graph, err := a.App.Plan(a.ctx, a.Request, a.Observer, "create")
		w.must(err)
		plan, err := json.Marshal(graph)
		w.must(err)
		told := 0
		for _, n := range graph.Nodes {
			s, ok := step.Unwrap(n.Step).(step.Writer)
			if !ok {
				continue
			}
			files, err := s.Writes()
			w.must(err)
			digest, err := step.Digest(n.Step)
			w.must(err)
			if strings.Contains(string(plan), digest) {
				t.Errorf("%s: the plain digest of the step is told", n.ID)
			}
			for _, f := range files {
				if strings.Contains(string(plan), fmt.Sprintf("%x", sha256.Sum256(f.Content))) {
					t.Errorf("%s: the plain digest of %s is told", n.ID, f.Path)
				}
				if strings.HasSuffix(f.Path, "docker.io/hosts.toml") {
					told++
				}
			}
		}
		if told == 0 {
			t.Error("no step writes the login")
		}
		if regexp.MustCompile(`"sha256:[0-9a-f]{64}"`).Match(plan) {
			t.Error("the plan holds plain digests")
		}
	})
}

// TestIdentity has a cluster known by its ID on its hosts and in its API, and one that was made before there were IDs
// keep what its hosts know.
func TestIdentity(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row1"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		certs := filepath.Join(w.dir, "row1", "certs")
		known := func(id string) error {
			text, err := os.ReadFile(filepath.Join(certs, "id"))
			if string(text) != id+"\n" {
				err = errors.Join(err, fmt.Errorf("the file has %q", text))
			}
			for name, h := range w.hosts {
				if env, _ := h.Get("/var/lib/kubexm/env"); !strings.Contains(env, "\nid="+id+"\n") {
					err = errors.Join(err, fmt.Errorf("%s has %q", name, env))
				}
			}
			if !strings.Contains(w.everything(), "  id: "+id+"\n  name: row1\n") {
				err = errors.Join(err, errors.New("the API does not have it"))
			}
			return err
		}
		id, err := (&pki.Store{Dir: certs}).RecordedID()
		w.must(err)
		if err := known(id); err != nil || len(id) != 26 {
			t.Errorf("ID %q: %v", id, err)
		}

		w.must(os.Remove(filepath.Join(certs, "id")))
		ca, err := (&pki.Store{Dir: certs}).CA(pki.Kubernetes)
		w.must(err)
		for _, h := range w.hosts {
			h.Put("/var/lib/kubexm/env", "cluster=row1\nid="+ca.Hash()+"\n", 0o644)
		}
		_, err = w.attempt(t.Context()).create()
		w.must(err)
		if err := known(ca.Hash()); err != nil {
			t.Errorf("made before: %v", err)
		}
	})
}
