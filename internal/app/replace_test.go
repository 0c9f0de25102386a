package app_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	kubexm "github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/etcd/etcdtest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestReplacedByItself refuses to replace machines that there are not, or that are still the same, and keeps what is known of them.
func TestReplacedByItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row2"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		recorded := filepath.Join(w.dir, "row2", "known_hosts")
		key := addresses["node2"] + " ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"
		w.must(os.WriteFile(recorded, []byte(key), 0o600))
		replace := func(host string, to kubexm.Addresses) (*attempt, error) {
			a := w.attempt(t.Context())
			_, err := a.App.ReplaceNode(a.ctx, a.Request, a.Observer, host, to)
			return a, err
		}
		before := w.snapshot()
		for host, wanted := range map[string]struct {
			says, advice string
			code         int
		}{
			"ndoe2": {"the configuration has no host ndoe2", "did you mean node2?", fault.ExitUsage},
			"other": {"the configuration has no host other", "there are: node1, node2", fault.ExitUsage},
			"node2": {"host node2 is still the same machine; nothing to replace", "kubexm apply", fault.ExitPreflight},
		} {
			if _, err := replace(host, kubexm.Addresses{}); err == nil || !strings.Contains(err.Error(), wanted.says) || !strings.Contains(fault.Advice(err), wanted.advice) || fault.ExitCode(err) != wanted.code {
				t.Errorf("%s: %v: %s", host, err, fault.Advice(err))
			}
		}
		if text, err := os.ReadFile(recorded); err != nil || string(text) != key {
			t.Errorf("the host key is forgotten: %s, %v", text, err)
		}
		same(t, "machines that are the same", before, w.snapshot())

		w.burn("node2")
		w.fresh("node2", "fedcba9876543210fedcba9876543210")
		for _, killed := range []int{40, 0} { // the next one goes on
			a := w.attempt(t.Context())
			dial := a.App.Dial
			a.App.Dial = func(ctx context.Context, h *v1alpha1.Host, knownHosts string) (connector.Connector, error) {
				if text, _ := os.ReadFile(knownHosts); h.Name == "node2" && strings.Contains(string(text), key) {
					return nil, fmt.Errorf("%w: another one", connector.ErrHostKey)
				}
				return dial(ctx, h, knownHosts)
			}
			if killed > 0 {
				a.killAt(killed)
			}
			_, err := a.App.ReplaceNode(a.ctx, a.Request, a.Observer, "node2", kubexm.Addresses{})
			if killed == 0 {
				w.must(err)
			}
		}
		w.settled()
		w.verified()
		if _, err := replace("node2", kubexm.Addresses{}); err == nil || !strings.Contains(err.Error(), "still the same machine") {
			t.Errorf("replaced twice: %v", err)
		}
	})
}

// TestEditMeanwhile writes the configuration while an edit of it waits for an answer: what was written stays.
func TestEditMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, joinedBy(row(t, "row2"), "node5 worker"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		text, err := os.ReadFile(w.file)
		w.must(err)
		mine := string(text) + "# mine\n"
		remove := func(meanwhile func()) error {
			a := w.attempt(t.Context())
			a.Edit = &kubexm.Edit{Remove: []string{"node5"}}
			a.MayRestart = func(context.Context, *app.Proposal) error { meanwhile(); return nil }
			_, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil)
			return err
		}
		before := w.snapshot()
		err = remove(func() { w.must(os.WriteFile(w.file, []byte(mine), 0o600)) })
		if err == nil || !strings.Contains(err.Error(), "has changed meanwhile") {
			t.Errorf("a file that has changed is overwritten: %v", err)
		}
		same(t, "machines", before, w.snapshot())
		if now, err := os.ReadFile(w.file); err != nil || string(now) != mine {
			t.Errorf("the file is\n%s\n%v", now, err)
		}
		w.must(remove(func() {}))
		if now, err := os.ReadFile(w.file); err != nil || !strings.Contains(string(now), "# mine") || hostsOf(string(now))["node5"] {
			t.Errorf("the file is\n%s\n%v", now, err)
		}
	})
}

// TestDryRefused refuses in a dry run what is refused in a run: with one of three members of etcd down, none of the others may leave.
func TestDryRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row9"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.etcds.Set(w.members["node3"], func(m *etcdtest.Member) { m.Down = true })
		for _, dry := range []bool{true, false} {
			a := w.attempt(t.Context())
			a.DryRun, a.Edit = dry, &kubexm.Edit{Remove: []string{"node2"}}
			if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(err.Error(), "etcd would lose its majority") {
				t.Errorf("dry run %t: %v", dry, err)
			}
		}
	})
}
