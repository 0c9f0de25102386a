package app_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/backup"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// recoveryKey is one of a test.
func recoveryKey(t *testing.T) (recipient string, keys []backup.Key) {
	t.Helper()
	private, recipient, err := backup.NewKey()
	if err == nil {
		keys, err = backup.Keys([]byte(private))
	}
	if err != nil {
		t.Fatal(err)
	}
	return recipient, keys
}

// note puts an object into the API.
func (w *world) note(name string) {
	w.put("{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: " + name + "}}")
}

func (w *world) noted(name string) bool {
	return strings.Contains(w.everything(), "\n  name: "+name+"\n")
}

// backedUp makes a cluster, and a backup of it that lacks what came later.
func backedUp(t *testing.T, config string) (w *world, file string, keys []backup.Key) {
	t.Helper()
	recipient, keys := recoveryKey(t)
	w = newWorld(t, config, "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	w.note("before")
	a, dir := w.attempt(t.Context()), filepath.Join(t.TempDir(), "backups")
	taken, err := a.App.Backup(a.ctx, a.Request, a.Observer, app.BackupOptions{To: []string{dir}, Recipients: []string{recipient}})
	w.must(err)
	w.note("after")
	return w, filepath.Join(dir, taken.Name), keys
}

// restoreFrom is one run of it. killed: at the nth step that has changed something; 0: at none.
func (w *world) restoreFrom(file string, keys []backup.Key, killed int) error {
	a := w.attempt(w.Context())
	a.MayRestore = func(context.Context, app.Restoring) error { return nil }
	n := 0
	a.Event = func(ev engine.Event) {
		if ev.Status == engine.Changed {
			if n++; n == killed {
				a.kill()
			}
		}
	}
	_, err := a.App.Restore(a.ctx, a.Request, a.Observer, file, keys)
	return err
}

// whole checks a cluster that was restored.
func (w *world) whole(t *testing.T) {
	t.Helper()
	if !w.noted("before") || w.noted("after") {
		t.Errorf("what was there before the backup is there: %t, what came after it: %t", w.noted("before"), w.noted("after"))
	}
	if left, _ := filepath.Glob(filepath.Join(w.dir, "*", "restore*")); left != nil {
		t.Errorf("a restore leaves behind: %q", left)
	}
	w.settled()
	w.verified()
}

// lostAll loses all machines, and the control machine.
func (w *world) lostAll(t *testing.T) {
	t.Helper()
	for i, h := range slices.Sorted(keysOf(w)) {
		w.burn(h)
		w.fresh(h, machineID(i))
	}
	w.api = nil
	names, err := filepath.Glob(filepath.Join(w.dir, "row*"))
	w.must(err)
	for _, n := range names {
		w.must(os.RemoveAll(n))
	}
}

func keysOf(w *world) func(func(string) bool) {
	var names []string
	for n := range w.hosts {
		names = append(names, n)
	}
	return slices.Values(names)
}

// TestRestored loses everything but a backup and its key, and makes the cluster again on other machines.
func TestRestored(t *testing.T) {
	for _, name := range []string{"row1", "row2", "row7", "row9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w, file, keys := backedUp(t, row(t, name))
				id, err := os.ReadFile(filepath.Join(w.dir, name, "certs", "id"))
				w.must(err)
				w.lostAll(t)
				w.must(w.restoreFrom(file, keys, 0))
				w.whole(t)
				if is, _ := os.ReadFile(filepath.Join(w.dir, name, "certs", "id")); string(is) != string(id) {
					t.Errorf("the cluster has another identity")
				}
			})
		})
	}
}

// TestRestoredElsewhere makes it again in another shape: with more masters, members of etcd by another program, other hosts.
func TestRestoredElsewhere(t *testing.T) {
	for _, way := range [][2]string{{"row1", "row9"}, {"row9", "row2"}, {"row7", "row1"}} {
		t.Run(way[0]+"-"+way[1], func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w, file, keys := backedUp(t, row(t, way[0]))
				w.lostAll(t)
				other := strings.Replace(row(t, way[1]), "name: "+way[1]+"}", "name: "+way[0]+"}", 1)
				for name := range addresses {
					if strings.Contains(other, name) && w.hosts[name] == nil {
						w.fresh(name, machineID(len(w.hosts)+10))
					}
				}
				w.configure(other)
				w.must(w.restoreFrom(file, keys, 0))
				w.whole(t)
			})
		})
	}
}

// TestRestoredMoved makes it again on machines with other addresses.
func TestRestoredMoved(t *testing.T) {
	for _, name := range []string{"row1", "row7", "row9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w, file, keys := backedUp(t, row(t, name))
				w.moved = map[string]string{}
				text := row(t, name)
				for h := range w.hosts {
					w.moved[h] = strings.Replace(addresses[h], "10.0.0.1", "10.0.0.6", 1)
					text = strings.ReplaceAll(text, addresses[h]+",", w.moved[h]+",")
				}
				w.lostAll(t)
				w.configure(text)
				w.must(w.restoreFrom(file, keys, 0))
				w.whole(t)
			})
		})
	}
}

// TestRestoredInPlace brings a cluster that runs back to a backup.
func TestRestoredInPlace(t *testing.T) {
	for _, name := range []string{"row1", "row2", "row7", "row9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w, file, keys := backedUp(t, row(t, name))
				w.must(w.restoreFrom(file, keys, 0))
				w.whole(t)
			})
		})
	}
}

// TestKilledRestore kills restores at any step, and carries on; and until then nothing else may be done to the cluster.
func TestKilledRestore(t *testing.T) {
	at := map[bool][]int{true: {2, 5, 12, 20, 30, 45, 60, 90}, false: {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}
	for _, name := range []string{"row5", "row9"} {
		for fresh, steps := range at {
			for _, at := range steps {
				t.Run(fmt.Sprintf("%s/fresh %t/%d", name, fresh, at), func(t *testing.T) {
					t.Parallel()
					bubble(t, func(t *testing.T) {
						w, file, keys := backedUp(t, row(t, name))
						if fresh {
							w.lostAll(t)
						}
						if w.restoreFrom(file, keys, at) == nil {
							t.Skip("it has fewer steps that change anything")
						}
						if _, err := w.attempt(t.Context()).create(); fault.ExitCode(err) != fault.ExitUsage {
							t.Errorf("create while a restore has not ended: %v", err)
						}
						w.must(w.restoreFrom(file, keys, 0))
						w.whole(t)
					})
				})
			}
		}
	}
}

// TestRestoredKept makes a cluster again on other machines of the same names, with a control machine that has everything still.
func TestRestoredKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, file, keys := backedUp(t, row(t, "row9"))
		for i, h := range slices.Sorted(keysOf(w)) {
			w.burn(h)
			w.fresh(h, machineID(i))
		}
		w.api = nil
		w.must(w.restoreFrom(file, keys, 0))
		w.whole(t)
	})
}

// TestRestoredRest restores a cluster in place of which two masters and the majority of etcd are gone, and a worker is off.
func TestRestoredRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		config := joinedBy(row(t, "row9"), "node5 worker")
		w, file, keys := backedUp(t, config)
		w.burn("node2")
		w.burn("node3")
		back := w.away("node5")
		w.configure(joinedBy(alone(row(t, "row9")), "node5 worker"))
		if err := w.restoreFrom(file, keys, 0); err == nil || !strings.Contains(err.Error(), "node5") {
			t.Errorf("without a worker: %v", err)
		}
		a := w.attempt(t.Context())
		a.AllowMissing, a.MayRestore = true, func(context.Context, app.Restoring) error { return nil }
		if _, err := a.App.Restore(a.ctx, a.Request, a.Observer, file, keys); err == nil || !strings.Contains(err.Error(), "they must be off") {
			t.Errorf("masters may go on with the data that they have: %v", err)
		}
		a = w.attempt(t.Context())
		a.AllowMissing, a.Force, a.MayRestore = true, true, func(context.Context, app.Restoring) error { return nil }
		_, err := a.App.Restore(a.ctx, a.Request, a.Observer, file, keys)
		w.must(err)
		back()
		w.apply()
		w.whole(t)
	})
}

// TestOtherRestore tries another backup while a restore has not ended, and goes on with the first one.
func TestOtherRestore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, file, keys := backedUp(t, row(t, "row9"))
		recipient, others := recoveryKey(t)
		a, dir := w.attempt(t.Context()), filepath.Join(t.TempDir(), "later")
		taken, err := a.App.Backup(a.ctx, a.Request, a.Observer, app.BackupOptions{To: []string{filepath.Join(w.file, "no directory"), dir}, Recipients: []string{recipient}})
		if err == nil || taken == nil || !slices.Equal(taken.Places, []string{dir}) || !strings.Contains(err.Error(), "no directory") {
			t.Fatalf("one place of two is there: %+v, %v", taken, err)
		}
		if w.restoreFrom(file, keys, 6) == nil {
			t.Fatal("it was not killed")
		}
		a = w.attempt(t.Context())
		if _, err := a.App.Backup(a.ctx, a.Request, a.Observer, app.BackupOptions{To: []string{dir}, Recipients: []string{recipient}}); err == nil || !strings.Contains(err.Error(), "has not ended") {
			t.Errorf("a backup of a cluster that is half restored: %v", err)
		}
		a.MayRestore = func(context.Context, app.Restoring) error { return errors.New("no") }
		if _, err := a.App.Restore(a.ctx, a.Request, a.Observer, filepath.Join(dir, taken.Name), others); err == nil {
			t.Error("it was refused, and went on")
		}
		w.must(w.restoreFrom(file, keys, 0))
		w.whole(t)
	})
}

// TestRegained loses the control machine of a cluster that goes on, and brings back what that had from a master, and from a backup.
func TestRegained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		recipient, keys := recoveryKey(t)
		w := newWorld(t, row(t, "row9")+"  backup: {recipients: ["+recipient+"]}\n", "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		t.Chdir(t.TempDir())
		a := w.attempt(t.Context())
		taken, err := a.App.Backup(a.ctx, a.Request, a.Observer, app.BackupOptions{To: []string{"backups"}})
		w.must(err)
		here := filepath.Join(w.dir, "row9")
		before := filesBelow(t, filepath.Join(here, "certs"))
		for _, source := range []string{"", filepath.Join("backups", taken.Name)} {
			w.must(os.RemoveAll(here))
			w.must(os.RemoveAll("conf"))
			regain := func(keys []backup.Key) (*app.Regained, error) {
				a := w.attempt(t.Context())
				return a.App.Regain(a.ctx, app.Request{}, a.Observer, source, v1alpha1.Host{Address: "node2"}, keys)
			}
			_, others := recoveryKey(t)
			if _, err := regain(others); !errors.Is(err, backup.ErrRecipient) {
				t.Errorf("another's key: %v", err)
			}
			is, err := regain(keys)
			w.must(err)
			if text, _ := os.ReadFile(is.Config); !strings.Contains(string(text), recipient) {
				t.Errorf("the configuration is %q", text)
			}
			same(t, "keys", before, filesBelow(t, filepath.Join(here, "certs")))
			if _, err := regain(keys); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "has a cluster of that name") {
				t.Errorf("where the cluster is known: %v", err)
			}
			w.settled()
			w.verified()
		}
	})
}

// filesBelow are the files of a directory, with their contents.
func filesBelow(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(&text, "%s\n%s\n", strings.TrimPrefix(path, dir), b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestNoRestore refuses what cannot end well, before anything is touched.
func TestNoRestore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, file, keys := backedUp(t, row(t, "row1"))
		before := w.snapshot()
		_, others := recoveryKey(t)
		sealed, err := os.ReadFile(file)
		w.must(err)
		damage := func(name string, change func([]byte) []byte) string {
			path := filepath.Join(t.TempDir(), name)
			w.must(os.WriteFile(path, change(slices.Clone(sealed)), 0o600))
			return path
		}
		for want, restore := range map[string]func() error{
			"encrypted for others":        func() error { return w.restoreFrom(file, others, 0) },
			"it is encrypted, and no key": func() error { return w.restoreFrom(file, nil, 0) },
			"it was cut off, damaged or changed": func() error {
				return w.restoreFrom(damage("cut", func(b []byte) []byte { return b[:len(b)-20] }), keys, 0)
			},
			"damaged or changed: failed": func() error {
				return w.restoreFrom(damage("bent", func(b []byte) []byte { b[len(b)-100] ^= 1; return b }), keys, 0)
			},
			"no backup of kubexm": func() error {
				return w.restoreFrom(damage("other", func([]byte) []byte { return []byte("PK") }), keys, 0)
			},
			"no file nothing": func() error { return w.restoreFrom("nothing", keys, 0) },
			"the configuration describes row2": func() error {
				w.configure(row(t, "row2"))
				defer w.configure(row(t, "row1"))
				return w.restoreFrom(file, keys, 0)
			},
			"Kubernetes v1.37.1, and the configuration has v1.36.4": func() error {
				w.configure(strings.Replace(row(t, "row1"), "v1.37.1", "v1.36.4", 1))
				defer w.configure(row(t, "row1"))
				return w.restoreFrom(file, keys, 0)
			},
			"spec.network.podCIDR is 10.244.0.0/16 in the configuration, and was 10.233.64.0/18": func() error {
				w.configure(edited(t, row(t, "row1"), "network: {podCIDR: 10.244.0.0/16}"))
				defer w.configure(row(t, "row1"))
				return w.restoreFrom(file, keys, 0)
			},
			"extraArgs.etcd-prefix is /other in": func() error {
				w.configure(edited(t, row(t, "row1"), "kubernetes: {apiServer: {extraArgs: {etcd-prefix: /other}}}"))
				defer w.configure(row(t, "row1"))
				return w.restoreFrom(file, keys, 0)
			},
		} {
			if err := restore(); err == nil || !strings.Contains(err.Error(), want) || fault.ExitCode(err) != fault.ExitUsage {
				t.Errorf("want %q, got %v", want, err)
			}
		}
		a := w.attempt(t.Context())
		refuse := errors.New("no, thanks")
		a.MayRestore = func(context.Context, app.Restoring) error { return refuse }
		if _, err := a.App.Restore(a.ctx, a.Request, a.Observer, file, keys); !errors.Is(err, refuse) {
			t.Errorf("it was refused: %v", err)
		}
		same(t, "hosts", before, w.snapshot())
		if left, _ := filepath.Glob(filepath.Join(w.dir, "*", "restore", "*")); left != nil {
			t.Errorf("it leaves secrets behind: %q", left)
		}
		w.settled()
	})
}
