package step_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/racetest"
)

func TestBlock(t *testing.T) {
	for name, c := range map[string]struct {
		have, want string
	}{
		"at the end":           {"a\n", "a\n# BEGIN\nx\n# END\n"},
		"after a cut line":     {"a", "a\n# BEGIN\nx\n# END\n"},
		"in an empty file":     {"", "# BEGIN\nx\n# END\n"},
		"in place":             {"a\n# BEGIN\n1\n2\n# END\nb\n\n", "a\n# BEGIN\nx\n# END\nb\n\n"},
		"no newline at end":    {"a\n# BEGIN\n# END", "a\n# BEGIN\nx\n# END\n"},
		"like a marker":        {"## BEGIN\n# BEGIN here\n", "## BEGIN\n# BEGIN here\n# BEGIN\nx\n# END\n"},
		"no end":               {"a\n# BEGIN\nb\n", ""},
		"no begin":             {"a\n# END\nb\n", ""},
		"wrong order":          {"# END\n# BEGIN\n", ""},
		"two begins":           {"# BEGIN\nmine\n# BEGIN\n# END\n", ""},
		"two blocks":           {"# BEGIN\n# END\n# BEGIN\n# END\n", ""},
		"end twice":            {"# BEGIN\n# END\nmine\n# END\n", ""},
		"markers with a space": {"# BEGIN \n# END \n", "# BEGIN \n# END \n# BEGIN\nx\n# END\n"},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostFor(nil)
			h.Put("/etc/hosts", c.have, 0o640)
			err := apply(t, h, hosts("x\n"))
			got, _ := h.Get("/etc/hosts")
			switch {
			case c.want == "":
				if err == nil || !strings.Contains(err.Error(), "fix the file by hand") || got != c.have {
					t.Errorf("got %v, %q", err, got)
				}
			case err != nil || got != c.want || h.Mode("/etc/hosts") != 0o640:
				t.Errorf("got %v, mode %v, want (-), have (+):\n%s", err, h.Mode("/etc/hosts"), cmp.Diff(c.want, got))
			}
		})
	}
}

func TestPackages(t *testing.T) {
	for name, c := range map[string]struct {
		host  func(string) *runnertest.Host
		step  step.Packages
		brake func(*runnertest.Host)
		fails string
	}{
		"apt":           {host: runnertest.Debian12, step: step.Packages{Manager: "apt", Names: []string{"socat", "conntrack"}}},
		"dnf":           {host: runnertest.Rocky9, step: step.Packages{Manager: "dnf", Names: []string{"socat", "conntrack-tools"}}},
		"unknown name":  {host: runnertest.Debian12, step: step.Packages{Manager: "apt", Names: []string{"socat", "nothing"}}, fails: "Unable to locate package nothing"},
		"no repository": {host: runnertest.Rocky9, step: step.Packages{Manager: "dnf", Names: []string{"socat"}}, brake: func(h *runnertest.Host) { h.Offline = true }, fails: "Failed to download metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.host("node1")
			if c.brake != nil {
				c.brake(h)
			}
			before := h.Installed()
			err := apply(t, h, c.step)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || !strings.Contains(fault.Advice(err), "package repositories") {
					t.Errorf("got %v, advice %q", err, fault.Advice(err))
				}
				if diff := cmp.Diff(before, h.Installed()); diff != "" {
					t.Error(diff)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if check(t, h, c.step) != nil {
				t.Error("there is something to do")
			}
			if err := h.Runner().Restore(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, h.Installed()); diff != "" {
				t.Errorf("after Restore: %s", diff)
			}
		})
	}
}

// TestPackagesOfOthers has an administrator who installs packages too: while a run is cut
// off, and one that needs one of ours. None of them goes.
func TestPackagesOfOthers(t *testing.T) {
	racetest.Slow(t)
	for name, c := range map[string]struct {
		host func(string) *runnertest.Host
		step step.Packages
		more string
	}{
		"apt": {runnertest.Debian12, step.Packages{Manager: "apt", Names: []string{"socat", "iptables"}}, "apt-get install -y "},
		"dnf": {runnertest.Rocky9, step.Packages{Manager: "dnf", Names: []string{"socat", "iptables"}}, "dnf install -y "},
	} {
		t.Run(name, func(t *testing.T) {
			for n := int64(1); ; n++ {
				h := c.host("node1")
				if _, err := h.Runner().Sh(t.Context(), "if command -v apt-get >/dev/null; then apt-get update; fi"); err != nil {
					t.Fatal(err)
				}
				iptables := "iptables"
				if name == "dnf" {
					iptables = "iptables-nft"
				}
				h.Repo["ufw"] = runnertest.Package{Depends: []string{iptables}}
				h.Repo["vim"] = runnertest.Package{}
				want := append(h.Installed(), iptables, "ufw", "vim")
				if name == "apt" {
					want = append(want, "libxtables12")
				}
				cut := &runnertest.Kill{After: n}
				h.Cut = cut
				_ = apply(t, h, c.step) // fails where it is cut
				h.Reboot()
				if _, err := h.Runner().Sh(t.Context(), c.more+"vim"); err != nil {
					t.Fatal(err)
				}
				if err := apply(t, h, c.step); err != nil {
					t.Fatal(err)
				}
				if _, err := h.Runner().Sh(t.Context(), c.more+"ufw"); err != nil {
					t.Fatal(err)
				}
				told := ""
				if err := h.Runner().Restore(t.Context(), func(text string) { told = text }); err != nil {
					t.Fatal(err)
				}
				slices.Sort(want)
				if diff := cmp.Diff(want, h.Installed()); diff != "" || !strings.Contains(told, iptables) {
					t.Fatalf("cut before command %d, told %q: %s", n, told, diff)
				}
				if cut.Count() <= n {
					return
				}
			}
		})
	}
}

// TestPackageScriptsOnRealShells lists this machine's packages.
func TestPackageScriptsOnRealShells(t *testing.T) {
	for _, shell := range runnertest.Shells() {
		r := runnertest.NewSandbox(t, shell).Runner()
		if out, err := r.Sh(t.Context(), "command -v dpkg-query"); err != nil || out == "" {
			t.Skip("this machine has no dpkg")
		}
		c, err := step.Packages{Manager: "apt", Names: []string{"coreutils", "no-such-package", "dpkg"}}.Precheck(t.Context(), r)
		if err != nil || c == nil || c.Diff != "+ packages no-such-package" {
			t.Errorf("%s: got %+v, %v", shell, c, err)
		}
	}
}

func TestCommand(t *testing.T) {
	h := hostFor(nil)
	if err := apply(t, h, step.Command{What: "x", Unless: "false", Run: "true"}); err == nil || !strings.Contains(err.Error(), "still differs after the change:\nrun: true") {
		t.Errorf("a command that does not reach its goal: %v", err)
	}
	if err := apply(t, h, step.Command{What: "x", Unless: "false", Run: "echo why >&2; false; touch /etc/never"}); err == nil || !strings.Contains(err.Error(), "status 1: why") {
		t.Errorf("a command that fails: %v", err)
	}
	if h.Mode("/etc/never") != 0 {
		t.Error("the command went on after a failure")
	}
	if c := check(t, h, step.Command{What: "x", Unless: "exit 0"}); c != nil {
		t.Error("a probe that exits is not believed")
	}
}

func TestOptions(t *testing.T) {
	s := step.File{Path: "/x"}
	with := step.With(s, step.Options{Timeout: time.Second, Retries: 5, Limit: "few"})
	if diff := cmp.Diff(step.Options{Timeout: step.DefaultTimeout, Retries: step.DefaultRetries}, step.OptionsOf(s)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(step.Options{Timeout: time.Second, Retries: 5, Limit: "few"}, step.OptionsOf(with)); diff != "" {
		t.Error(diff)
	}
	if step.Kind(with) != "step.File" || with.String() != "file /x" {
		t.Errorf("%s is of kind %s", with, step.Kind(with))
	}
}

func TestDigest(t *testing.T) {
	file, dir := step.File{Path: "/x", Content: step.Content("x"), Mode: 0o600}, step.Dir{Path: "/y"}
	a, err := step.Digest(file, dir)
	b, err2 := step.Digest(file, dir)
	c, err3 := step.Digest(dir, file)
	if errors.Join(err, err2, err3) != nil || a != b || a == c || len(a) != 16 {
		t.Errorf("%s %s %s: %v", a, b, c, errors.Join(err, err2, err3))
	}
	type other struct{ step.Dir }
	d, err := step.Digest(other{dir})
	e, err2 := step.Digest(dir)
	if err != nil || err2 != nil || d == e {
		t.Error("the kind does not count")
	}
}

// TestReread leaves out of the fingerprint what programs read again by themselves, and nothing else.
func TestReread(t *testing.T) {
	digest := func(text string, reread bool) string {
		sum, err := step.Digest(step.With(step.Files{List: []step.File{{Path: "/a", Content: step.Content(text), Reread: reread}}}, step.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	if digest("1", true) != digest("2", true) || digest("1", false) == digest("2", false) {
		t.Error("what is read again counts, or what is read once does not")
	}
}
