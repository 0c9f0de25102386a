package app_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestRegistry has nodes take their images from the private registry, and looks into that.
func TestRegistry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "registry"), "")
		a := w.attempt(t.Context())
		if _, err := a.App.ListRegistry(a.ctx, a.Request, a.Observer); err == nil || !strings.Contains(err.Error(), "there is no cluster") {
			t.Errorf("list before create: %v", err)
		}
		list, err := a.App.Images(a.ctx, a.Request, a.Observer, nil)
		w.must(err)
		if slices.ContainsFunc(list.Images, func(i app.NeededImage) bool { return !i.InStore || i.InRegistry != nil }) || len(a.Notices) == 0 {
			t.Errorf("images before create: %+v, %q", list.Images, a.Notices)
		}
		_, err = w.attempt(t.Context()).create()
		w.must(err)
		var text strings.Builder
		for _, name := range []string{"node1", "node2", "node4"} {
			for _, l := range w.hosts[name].Log() {
				if strings.HasPrefix(l, "pull ") || strings.HasPrefix(l, "import ") {
					fmt.Fprintln(&text, name, l)
				}
			}
		}
		golden.File(t, "testdata/registry/pulled.txt", sorted(text.String()))

		a = w.attempt(t.Context())
		content, err := a.App.ListRegistry(a.ctx, a.Request, a.Observer)
		w.must(err)
		out, err := yaml.Marshal(content)
		w.must(err)
		golden.File(t, "testdata/registry/list.yaml", string(out))
		a = w.attempt(t.Context())
		list, err = a.App.Images(a.ctx, a.Request, a.Observer, nil)
		w.must(err)
		if len(list.Images) == 0 || slices.ContainsFunc(list.Images, func(i app.NeededImage) bool { return i.InRegistry == nil || !*i.InRegistry }) {
			t.Errorf("images after create: %+v", list.Images)
		}
		w.push(t)
		w.onlyLooks(t)

		w.health()
		is := w.status(w.attempt(t.Context()))
		if !strings.Contains(is, "- healthy: true\n  host: node4\n  name: registry\n") {
			t.Errorf("status:\n%s", is)
		}
		w.serveAt("10.0.0.14:443", nil)
		w.hosts["node4"].Serve("127.0.0.1:5001", nil)
		for _, dry := range []bool{true, false} {
			a := w.attempt(t.Context())
			a.DryRun = dry
			if _, err := a.App.PushImages(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("push to a registry that is down, dry %t: %v", dry, err)
			}
		}
		if is = w.status(w.attempt(t.Context())); !strings.Contains(is, "registry on node4: registry registry.kubexm.local: ") {
			t.Errorf("status without the registry:\n%s", is)
		}
	})
}

// push brings what else the store has, once.
func (w *world) push(t *testing.T) {
	a := w.attempt(t.Context())
	_, err := a.App.PushImages(a.ctx, a.Request, a.Observer, []string{"registry.k8s.io/pase:3.10.2"})
	if fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(fault.Advice(err), "did you mean registry.k8s.io/pause:3.10") {
		t.Errorf("an image that is not there: %v, %s", err, fault.Advice(err))
	}
	for _, want := range []int{1, 0} {
		a := w.attempt(t.Context())
		if res, err := a.App.PushImages(a.ctx, a.Request, a.Observer, nil); err != nil || res.Summary.Changed != want {
			t.Errorf("push: %+v, %v; want %d changed", res, err, want)
		}
	}
	w.configure(row(t, "row1"))
	a = w.attempt(t.Context())
	if _, err := a.App.PushImages(a.ctx, a.Request, a.Observer, nil); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "has no private registry") {
		t.Errorf("push to nowhere: %v", err)
	}
	w.configure(row(t, "registry"))
}

// onlyLooks pushes while another is at work, and looks for a registry whose keys are gone: none are made.
func (w *world) onlyLooks(t *testing.T) {
	keys, err := filepath.Glob(filepath.Join(w.dir, "*/certs/registry"))
	if err != nil || len(keys) != 1 {
		t.Fatalf("%q, %v", keys, err)
	}
	lock, err := os.OpenFile(filepath.Join(keys[0], "../../lock"), os.O_RDWR, 0)
	w.must(err)
	w.must(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	a := w.attempt(t.Context())
	if _, err := a.App.PushImages(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(err.Error(), "another kubexm is at work on cluster") {
		t.Errorf("push beside another: %v", err)
	}
	w.must(lock.Close())
	w.must(os.Rename(keys[0], w.dir+"/keys"))
	for name, use := range map[string]func() error{
		"list": func() error { _, err := a.App.ListRegistry(a.ctx, a.Request, a.Observer); return err },
		"push": func() error { _, err := a.App.PushImages(a.ctx, a.Request, a.Observer, nil); return err },
		"images": func() error {
			_, err := a.App.Images(a.ctx, a.Request, a.Observer, nil)
			return errors.Join(err, errors.New(strings.Join(a.Notices, "")))
		},
	} {
		if err := use(); err == nil || !strings.Contains(err.Error(), "does not exist yet: ") {
			t.Errorf("%s without keys: %v", name, err)
		}
		if _, err := os.Stat(keys[0]); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s made keys: %v", name, err)
		}
	}
	w.must(os.Rename(w.dir+"/keys", keys[0]))
}

func sorted(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestRegistryOnNodes has the registry on a machine that is something else, too, and a store of two architectures.
func TestRegistryOnNodes(t *testing.T) {
	for name, c := range map[string]struct {
		row, host string
		archs     []string
	}{
		"a worker":                       {"row1", "node2", nil},
		"a master":                       {"row2", "node1", nil},
		"a worker, of two architectures": {"row3", "node2", []string{"arm64", "amd64"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := row(t, c.row) + "  roleGroups: {registry: [" + c.host + "]}\n  registry: {auth: {registry.kubexm.local: {username: nodes, password: hunter2}}}\n"
			var w *world
			if c.archs == nil {
				w = newWorld(t, config, "")
			} else {
				u := resourcetest.New()
				defer u.Close()
				w = newWorld(t, config, u.Mirrors())
				d, err := (&app.App{Workdir: w.dir}).NewDownload(t.Context(), app.Request{File: w.file}, app.Observer{}, app.Selection{Archs: c.archs})
				w.must(err)
				_, err = d.Run(app.Bundle{})(t.Context(), app.Request{}, app.Observer{})
				w.must(err)
			}
			bubble(t, func(t *testing.T) {
				before := w.snapshot()
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				after := w.snapshot()
				a := w.attempt(t.Context())
				if res, err := a.create(); err != nil || res.Summary.OK != res.Summary.Total {
					t.Errorf("second run: %+v, %v", res, err)
				}
				same(t, "hosts after the second run", after, w.snapshot())
				look := w.attempt(t.Context())
				content, err := look.ListRegistry(look.ctx, look.Request, look.Observer)
				w.must(err)
				for _, i := range content.Images {
					if have := w.hosts["node1"].Images()[i.Repository+":"+i.Tag]; have != i.Digest && have != "" || len(i.Archs) != len(c.archs) {
						t.Errorf("node1 has %s, the registry %+v", have, i)
					}
				}
				if strings.Contains(after+strings.Join(a.Notices, ""), "hunter2") {
					t.Error("the password is in plain text on a host, or told")
				}
				w.live()
				_, err = w.attempt(t.Context()).delete()
				w.must(err)
				same(t, "hosts after delete", before, w.snapshot())
			})
		})
	}
}

// TestRegistryTroubles shows what is told of a registry that does not do what it is there for.
func TestRegistryTroubles(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(w *world)
		told  []string
	}{
		"does not answer": {func(w *world) {
			w.hosts["node4"].OnStart["registry.service"] = func(*runnertest.Host) error { return nil }
		}, []string{
			"wait for registry on node4: not done after 3m0s: registry registry.kubexm.local: ", "connection refused\n",
			"last log lines of registry:\n", "advice: look at the host: journalctl -u registry\n",
		}},
		"out of a node's reach": {func(w *world) {
			start := w.hosts["node4"].OnStart["registry.service"]
			w.hosts["node4"].OnStart["registry.service"] = func(h *runnertest.Host) error {
				err := start(h)
				w.hosts["node1"].Serve("10.0.0.14:443", nil)
				return err
			}
		}, []string{"container images on node1: pulling ", "10.0.0.14:443 on node1: connection refused", "advice: kubexm registry list shows what the private registry has; "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, "registry"), "")
				c.spoil(w)
				a := w.attempt(t.Context())
				_, err := a.create()
				told := a.told(err)
				for _, text := range c.told {
					if !strings.Contains(told, text) {
						t.Errorf("%q is not in\n%s", text, told)
					}
				}
			})
		})
	}
}

// TestRegistryLosesImages has the registry's disk replaced: the next run brings the images again, and nodes keep theirs.
func TestRegistryLosesImages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "registry"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		h := w.hosts["node4"]
		h.Remove("/var/lib/registry")
		h.Reboot()
		a := w.attempt(t.Context())
		res, err := a.create()
		w.must(err)
		var changed []string
		for _, ev := range a.Events {
			if ev.Status == engine.Changed {
				changed = append(changed, ev.What)
			}
		}
		if want := []string{"directory /var/lib/registry", "images in registry.kubexm.local"}; !slices.Equal(changed, want) || res.Summary.Failed > 0 {
			t.Errorf("changed %q, want %q: %+v", changed, want, res.Summary)
		}
	})
}
