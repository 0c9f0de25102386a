package step_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/golden"
	"github.com/kubexm/kubexm/pkg/util/racetest"
)

const secret = "s3cr3t-content"

func unit(name string) step.Service {
	return step.Service{
		Name: name, Unit: step.Content("[Service]\nType=notify\n\n[Install]\nWantedBy=multi-user.target\n"),
		DropIn: step.Content("[Service]\nExecStart=/opt/bin/" + name + " --flag\n"),
	}
}

// kinds has a step of every generic kind, in every state that it may find, each
// with something to do.
var kinds = map[string]struct {
	step step.Step
	prep func(*runnertest.Host)
	once bool // cannot be rolled back
}{
	"file new":     {step: step.File{Path: "/etc/a/b.conf", Content: step.Content("one\ntwo\n"), Mode: 0o644}},
	"file changed": {step: step.File{Path: "/etc/hosts", Content: step.Content("127.0.0.1\tlocalhost\n10.0.0.1 x\n"), Mode: 0o644}},
	"file mode":    {step: step.File{Path: "/etc/hosts", Content: step.Content("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"), Mode: 0o600, Owner: "nobody:nogroup"}},
	"file secret":  {step: step.File{Path: "/etc/key", Content: step.Content(secret), Mode: 0o600}},
	"file opened": { // the old content is secret
		step: step.File{Path: "/etc/key", Content: step.Content("public"), Mode: 0o644},
		prep: func(h *runnertest.Host) { h.Put("/etc/key", secret, 0o600) },
	},
	"files": {
		step: step.Files{What: "etcd certificates", List: []step.File{
			{Path: "/etc/ssl/ca.pem", Content: step.Content("new\n"), Mode: 0o644},
			{Path: "/etc/ssl/key.pem", Content: step.Content(secret), Mode: 0o600},
			{Path: "/etc/hostname", Content: step.Content("node1\n"), Mode: 0o644},
		}},
		prep: func(h *runnertest.Host) { h.Put("/etc/ssl/ca.pem", "old\n", 0o644) },
	},
	"files and a command": {step: step.Files{
		What: "marks", List: []step.File{{Path: "/etc/marks/a", Content: step.Content("a\n"), Mode: 0o644}},
		Also: []step.Command{{What: "mark", Unless: `[ "$(cat /etc/mark)" = 0 ]`, Run: `[ -e /etc/marks/a ]; keep /etc/mark; echo 0 >/etc/mark`, Undo: "echo 1 >/etc/mark"}},
	}},
	"block new":      {step: hosts("10.0.0.1 a\n")},
	"block in place": {step: hosts("10.0.0.1 a\n"), prep: func(h *runnertest.Host) { h.Put("/etc/hosts", "first\n# BEGIN\nold\n# END\nlast\n", 0o640) }},
	"block first":    {step: step.Block{Path: "/etc/hosts", Begin: "# BEGIN", End: "# END", Content: step.Content("10.0.0.1 a\n"), Mode: 0o644, First: true}},
	"block no file":  {step: step.Block{Path: "/etc/new", Begin: "# BEGIN", End: "# END", Mode: 0o640}},
	"dir new":        {step: step.Dir{Path: "/srv/a/b", Mode: 0o700}},
	"dir mode":       {step: step.Dir{Path: "/srv", Mode: 0o700}},
	"dir owner": {
		step: step.Dir{Path: "/srv", Mode: 0o700},
		prep: func(h *runnertest.Host) {
			if _, err := h.Runner().Sh(context.Background(), "chown nobody:nogroup /srv; chmod 2750 /srv"); err != nil {
				panic(err)
			}
		},
	},
	"command": {step: step.Command{What: "mark", Unless: `[ "$(cat /etc/mark)" = 0 ]`, Run: `made /etc/marks; keep /etc/mark; echo 0 >/etc/mark`, Undo: "echo 1 >/etc/mark"}},
	"commands": {step: step.Commands{What: "marks", List: []step.Command{
		{What: "mark", Unless: `[ "$(cat /etc/mark)" = 0 ]`, Run: `keep /etc/mark; echo 0 >/etc/mark`, Undo: "echo 1 >/etc/mark"},
		{What: "nothing", Unless: "exit 0", Run: "exit 1"},
		{What: "flag", Unless: "[ -e /etc/flag ]", Run: "keep /etc/flag; touch /etc/flag", Undo: "rm -f /etc/flag"},
	}}},
	"service": {step: unit("etcd")},
	"service with files": {step: step.Service{
		Name: "etcd", Unit: unit("etcd").Unit, DropIn: unit("etcd").DropIn, Files: []step.File{{Path: "/etc/default/etcd", Content: step.Content("A=1\n"), Mode: 0o644}},
	}},
	"service of the system": {
		step: step.Service{Name: "ssh", DropIn: step.Content("[Service]\nEnvironment=\"A=1 2\" B=3\n")},
	},
	"service held": {step: func() step.Step { s := unit("kubelet"); s.Hold = []string{"/etc/begun"}; return s }()},
	"timer":        {step: step.Timer{Name: "kubexm-care", Description: "Care", Calendar: "daily", Timeout: "1h", Script: "echo done\n"}.Steps()[1]},
	"modules":      {step: step.Modules{Path: "/etc/modules-load.d/kubexm.conf", Names: []string{"overlay", "br_netfilter", "bridge", "none"}}},
	"modules loaded": {
		step: step.Modules{Path: "/etc/modules-load.d/kubexm.conf", Names: []string{"overlay"}},
		prep: func(h *runnertest.Host) {
			h.Put("/etc/modules-load.d/overlay.conf", "overlay\n", 0o644)
			h.Reboot()
		},
	},
	"sysctl": {step: step.Sysctl{Path: "/etc/sysctl.d/99-kubexm.conf", Values: map[string]string{
		"net.ipv4.ip_forward": "1", "net.ipv4.tcp_rmem": "4096  131072\t8388608", "vm.overcommit_memory": "0",
	}}},
	"sysctl file only": {step: step.Sysctl{Path: "/etc/sysctl.d/99-kubexm.conf", Values: map[string]string{"vm.overcommit_memory": "0"}}},
	"sysctl with a file": {step: step.Sysctl{
		Path: "/etc/sysctl.d/99-kubexm.conf", Values: map[string]string{"vm.overcommit_memory": "1"}, Files: []step.File{{Path: "/etc/limits", Content: step.Content("x\n"), Mode: 0o644}},
	}},
	"packages instead": {step: step.Packages{Manager: "apt", Names: []string{"chrony"}}, once: true},
	"packages":         {step: step.Packages{Manager: "apt", Names: []string{"bash", "socat", "conntrack"}}, once: true},
}

func hosts(lines string) step.Block {
	return step.Block{Path: "/etc/hosts", Begin: "# BEGIN", End: "# END", Content: step.Content(lines), Mode: 0o644}
}

func hostFor(prep func(*runnertest.Host)) *runnertest.Host {
	h := runnertest.Debian12("node1")
	for _, p := range []string{"etcd", "kubelet"} {
		h.Put("/opt/bin/"+p, "ELF", 0o755)
	}
	delete(h.OnStart, "kubelet.service")
	h.Put("/etc/mark", "1\n", 0o644)
	if prep != nil {
		prep(h)
	}
	h.ClearLog()
	return h
}

func check(t *testing.T, h *runnertest.Host, s step.Step) *step.Change {
	t.Helper()
	h.ClearLog()
	c, err := s.Precheck(t.Context(), h.Runner())
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	if log := h.Log(); len(log) > 0 {
		t.Errorf("Precheck of %s changed the host: %q", s, log)
	}
	return c
}

// apply looks, changes and verifies; nothing to do is not an error.
func apply(t *testing.T, h *runnertest.Host, s step.Step) error {
	t.Helper()
	r := h.Runner()
	c, err := s.Precheck(t.Context(), r)
	if err != nil || c == nil {
		return err
	}
	if err := c.Run(t.Context()); err != nil {
		return err
	}
	return step.Verify(t.Context(), r, s, c)
}

// ours matches kubexm's own records in a Snapshot.
var ours = regexp.MustCompile(`(?m)^` + runner.StateDir + `.*\n(    .*\n)*`)

// state is the host without kubexm's records, and without the empty directories
// that a rollback leaves and the ledger knows.
func state(h *runnertest.Host) string {
	s := ours.ReplaceAllString(h.Snapshot(), "")
	ledger, _ := h.Get(runner.StateDir + "/ledger")
	for l := range strings.Lines(ledger) {
		if d, ok := strings.CutPrefix(l, "dir "); ok {
			s = regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(strings.TrimSpace(d))+` d.*\n`).ReplaceAllString(s, "")
		}
	}
	return s
}

func TestKinds(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			h := hostFor(k.prep)
			before := state(h)
			c := check(t, h, k.step)
			if c == nil {
				t.Fatal("nothing to do")
			}
			golden.Equal(t, k.step.String()+"\n"+strings.TrimSuffix(c.Diff, "\n")+"\n", "diff")
			if err := apply(t, h, k.step); err != nil {
				t.Fatal(err)
			}
			after := h.Snapshot()
			if c := check(t, h, k.step); c != nil {
				t.Errorf("once more there is something to do:\n%s", c.Diff)
			}
			if h.Snapshot() != after {
				t.Error("looking again changed the host")
			}
			if k.once {
				if c.Rollback != nil {
					t.Error("has a rollback")
				}
				return
			}
			h = hostFor(k.prep)
			if c = check(t, h, k.step); c.Run(t.Context()) != nil || c.Rollback(t.Context()) != nil {
				t.Fatal("does not roll back")
			}
			if diff := cmp.Diff(before, state(h)); diff != "" {
				t.Errorf("after a rollback the host differs:\n%s", diff)
			}
		})
	}
}

// TestPowerCut cuts the power before every fourth command of every change, starts the host again and lets a new run end
// what the other began.
func TestPowerCut(t *testing.T) {
	racetest.Slow(t)
	powerCut(t, 4)
}

// TestFaultsPowerCut does so before every command.
func TestFaultsPowerCut(t *testing.T) { powerCut(t, 1) }

func powerCut(t *testing.T, stride int64) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			undisturbed := hostFor(k.prep)
			if err := apply(t, undisturbed, k.step); err != nil {
				t.Fatal(err)
			}
			undisturbed.Reboot()
			want := undisturbed.Snapshot()
			looks := hostFor(k.prep)
			looks.Cut = &runnertest.Kill{}
			check(t, looks, k.step)
			seen := map[string]bool{}
			for n := max(1, looks.Cut.Count()); ; n += stride { // looking changes nothing
				h := hostFor(k.prep)
				cut := &runnertest.Kill{After: n}
				h.Cut = cut
				_ = apply(t, h, k.step) // fails where it is cut
				h.Reboot()
				if cut.Count() <= n {
					break
				}
				left := h.Snapshot()
				if seen[left] {
					continue
				}
				seen[left] = true
				if err := apply(t, h, k.step); err != nil {
					t.Fatalf("power cut before command %d: %v", n, err)
				}
				h.Reboot()
				if diff := cmp.Diff(want, h.Snapshot()); diff != "" {
					t.Fatalf("power cut before command %d: the host differs from an undisturbed one:\n%s", n, diff)
				}
			}
		})
	}
}

// TestKilled kills kubexm during each script, and resumes.
func TestKilled(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			undisturbed := hostFor(k.prep)
			if err := apply(t, undisturbed, k.step); err != nil {
				t.Fatal(err)
			}
			for n := int64(1); ; n++ {
				h := hostFor(k.prep)
				kill := &runnertest.Kill{After: n}
				h.Kill = kill
				_ = apply(t, h, k.step) // fails where it is killed
				h.Kill = nil
				if kill.Count() <= n {
					break
				}
				if err := apply(t, h, k.step); err != nil {
					t.Fatalf("killed in script %d: %v", n+1, err)
				}
				if diff := cmp.Diff(undisturbed.Snapshot(), h.Snapshot()); diff != "" {
					t.Fatalf("killed in script %d: the host differs from an undisturbed one:\n%s", n+1, diff)
				}
			}
		})
	}
}

// TestRestoreTakesAllBack uses the ledger, as deleting a cluster does.
func TestRestoreTakesAllBack(t *testing.T) {
	loses := map[string]bool{"around": true, "block in place": true} // no end, or no block before
	for name, k := range kinds {
		if loses[name] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			h := hostFor(k.prep)
			before := h.Snapshot()
			if err := apply(t, h, k.step); err != nil {
				t.Fatal(err)
			}
			if err := h.Runner().Restore(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, h.Snapshot()); diff != "" {
				t.Errorf("after Restore the host differs:\n%s", diff)
			}
		})
	}
}

// TestNoSecretInPlans plans every kind.
func TestNoSecretInPlans(t *testing.T) {
	for name, k := range kinds {
		h := hostFor(k.prep)
		if c := check(t, h, k.step); strings.Contains(c.Diff, secret) {
			t.Errorf("the diff of %s shows a secret", name)
		}
		g, err := plan.New(plan.Pipeline{Name: "p", Parts: []plan.Part{plan.Task{Name: "t", Hosts: []string{"a"}, Steps: func(string) []step.Step { return []step.Step{k.step} }}}})
		if err != nil {
			t.Fatal(err)
		}
		if spec := string(g.Nodes[0].Spec); strings.Contains(spec, secret) || spec == "{}" {
			t.Errorf("the plan of %s is %s", name, spec)
		}
	}
}
