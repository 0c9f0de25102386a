package app_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// passwords are the secrets of a configuration.
var passwords = []string{"login-Zu7che", "sudo-Ohw3ei", "phrase-Aey1oo"}

// overheard is all that leaves the process or is written down, by place.
type overheard struct {
	mu    sync.Mutex
	texts map[string]*strings.Builder
}

func (o *overheard) hear(place, format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.texts[place] == nil {
		o.texts[place] = &strings.Builder{}
	}
	fmt.Fprintf(o.texts[place], format+"\n", args...)
}

// TestNoSecretTold runs clusters to a good and to a bad end, and looks for their
// passwords and keys in everything that people or other programs can see.
func TestNoSecretTold(t *testing.T) {
	for _, name := range []string{"row1", "row2", "row3", "row22-kubexm", "harbor"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				config := with("spec:\n", "spec:\n  global: {user: admin, password: "+passwords[0]+", sudoPassword: "+passwords[1]+", passphrase: "+passwords[2]+"}\n")
				w := newWorld(t, config(row(t, name)), "")
				heard := &overheard{texts: map[string]*strings.Builder{}}
				secrets := &overheard{texts: map[string]*strings.Builder{}} // keys that only hosts get

				a := w.listening(t.Context(), heard, secrets)
				graph, err := a.App.Plan(a.ctx, a.Request, a.Observer, "create")
				w.must(err)
				plan, err := json.Marshal(graph)
				w.must(err)
				heard.hear("plan", "%s", plan)

				well := w.hosts["node2"].OnStart["kubelet.service"]
				w.hosts["node2"].OnStart["kubelet.service"] = func(*runnertest.Host) error { return fmt.Errorf("broken") }
				a = w.listening(t.Context(), heard, secrets) // the plan has closed its connections
				if _, err = a.create(); err == nil {
					t.Fatal("went well")
				}
				heard.hear("error", "%v", err)
				w.hosts["node2"].OnStart["kubelet.service"] = well
				a = w.listening(t.Context(), heard, secrets)
				a.Resume = true
				if _, err = a.create(); err != nil {
					t.Fatal(err)
				}
				w.kept(heard)
				a = w.listening(t.Context(), heard, secrets)
				a.DryRun = true
				if _, err = a.create(); err != nil {
					t.Fatal(err)
				}
				if logs, _ := filepath.Glob(filepath.Join(w.dir, "*", "runs", "debug.jsonl")); len(logs) != 1 {
					t.Error("a dry run has no log")
				}
				keys := w.logs(heard)
				for _, k := range []string{"timestamp", "message", "run", "pipeline", "module", "task", "step", "node", "status", "duration_ms", "error", "command", "level DEBUG", "level INFO", "level ERROR"} {
					if keys[k] == 0 {
						t.Errorf("no line of a log has %s", k)
					}
				}
				if all := w.secrets(secrets); len(all) < 20 {
					t.Errorf("only %d secrets are known", len(all))
				} else {
					heard.check(t, all)
				}
			})
		})
	}
}

// listening prepares a run of which all is heard, and the files that hosts get.
func (w *world) listening(ctx context.Context, heard, files *overheard) *attempt {
	a := w.attempt(ctx)
	a.Debug = true
	a.Notice = func(text string) { heard.hear("notice", "%s", text) }
	a.Event = func(ev engine.Event) { heard.hear("event", "%+v", ev) }
	a.around = func(h *runnertest.Host, ctx context.Context, c connector.Cmd) error {
		heard.hear("command on "+h.Name, "%s", c.Line)
		err := h.Exec(ctx, c)
		heard.hear("command on "+h.Name, "%v", err)
		if conf, ok := h.Get("/var/lib/kubelet/pki/kubelet-client-join.pem"); ok {
			files.hear("key", "%s", conf)
		}
		return err
	}
	return a
}

// kept hears what is kept of runs.
func (w *world) kept(heard *overheard) {
	w.records(func(_ string, st store.Store) {
		runs, err := st.Runs()
		w.must(err)
		for _, r := range runs {
			heard.hear("run", "%+v", r)
			graph, err := st.Graph(r)
			w.must(err)
			text, err := json.Marshal(graph)
			w.must(err)
			heard.hear("plan of a run", "%s", text)
			w.must(st.Events(r, 0, func(_ int64, ev engine.Event) error { heard.hear("event of a run", "%+v", ev); return nil }))
		}
		all, err := st.History()
		w.must(err)
		for i, r := range all {
			heard.hear("resolved configuration", "%s", r.Resolved)
			if i < len(all)-1 {
				heard.hear("configuration of before", "as given: %s", r.Given)
			}
		}
	})
}

// logs hears the logs of runs, and tells what keys their lines have.
func (w *world) logs(heard *overheard) map[string]int {
	keys := map[string]int{}
	files, err := filepath.Glob(filepath.Join(w.dir, "*", "runs", "*.jsonl"))
	w.must(err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		w.must(err)
		for line := range strings.Lines(string(text)) {
			heard.hear("log", "%s", line)
			var entry map[string]any
			w.must(json.Unmarshal([]byte(line), &entry))
			for k := range entry {
				keys[k]++
			}
			keys["level "+fmt.Sprint(entry["level"])]++
		}
	}
	return keys
}

// secrets are the lines and the forms in which secrets would be told.
func (w *world) secrets(keys *overheard) map[string]string {
	all := map[string]string{}
	for _, p := range passwords {
		all[p] = "password"
	}
	tell := func(text, of string) {
		private := false // the rest are certificates
		for l := range strings.Lines(text) {
			if l = strings.TrimSpace(l); strings.Contains(l, "-----") {
				private = strings.Contains(l, "BEGIN") && strings.Contains(l, "PRIVATE")
			} else if private && len(l) > 30 {
				all[l] = of
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(w.dir, "*", "certs", "*", "*.key"))
	w.must(err)
	if w.etcd31 != nil {
		files = append(files, filepath.Join(etcdCerts(), "node-kubernetes.key"))
	}
	for _, k := range files {
		text, err := os.ReadFile(k)
		w.must(err)
		tell(string(text), k)
		all[base64.StdEncoding.EncodeToString(text)[:200]] = k // as in a kubeconfig
	}
	if seen := keys.texts["key"]; seen != nil {
		tell(seen.String(), "a joining node")
	}
	return all
}

func (o *overheard) check(t *testing.T, secrets map[string]string) {
	t.Helper()
	for _, place := range []string{"plan", "notice", "event", "error", "command on node1", "plan of a run", "event of a run", "run", "resolved configuration", "configuration of before"} {
		if o.texts[place] == nil {
			t.Errorf("nothing was heard of %s", place)
		}
	}
	for place, text := range o.texts {
		for secret, what := range secrets {
			if strings.Contains(text.String(), secret) {
				t.Errorf("%s tells the secret of %s", place, what)
			}
		}
	}
}
