package etcd

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

const (
	copies = "#!/bin/sh\nwhile [ $# -gt 0 ]; do if [ \"$1\" = --data-dir ]; then mkdir -p \"$2/member\" && echo backup >\"$2/member/data\"; fi; shift; done\n"
	begin  = "set -e\nbegin_anew node1 node1=https://10.0.0.11:2380 https://10.0.0.11:2380 1000 /opt/etcdutl /snapshot"
	is     = "if restored node1 node1=https://10.0.0.11:2380; then echo yes; fi"
)

// before is a machine that has a member of etcd, and an etcdutl.
func before(t *testing.T, shell, utility string) (s *runnertest.Sandbox, library string) {
	t.Helper()
	s = runnertest.NewSandbox(t, shell)
	s.Put("/var/lib/etcd/member/data", "former\n", 0o600)
	s.Put("/opt/etcdutl", utility, 0o755)
	return s, runner.Inputs("D", "/var/lib/etcd", "ID", "1234", "M", "/etc/kubernetes/manifests", "R", "/var/lib/restored") + runner.Script(scripts, "restore")
}

// TestBeginsAnew cuts a restoration before each of its commands on real shells, and lets each of them fail: in the end the member has the data of the backup, and what was there before
// is kept.
func TestBeginsAnew(t *testing.T) {
	for _, shell := range runnertest.Shells() {
		for how, command := range map[string]string{"cut": "exit 7", "failed": "return 7"} {
			t.Run(shell+"/"+how, func(t *testing.T) {
				t.Parallel()
				for at := range 12 {
					s, library := before(t, shell, copies)
					var dies strings.Builder
					for _, c := range []string{"mkdir", "rm", "mv", "sync"} {
						dies.WriteString(c + "() { n=$((n+1)); if [ $n -gt " + strconv.Itoa(at) + " ]; then " + command + "; fi; command " + c + " \"$@\"; }\n")
					}
					library += "pids() { true; }\n" // whatever this machine runs
					_, err := s.Runner().Sh(t.Context(), library+"n=0\n"+dies.String()+begin)
					if out, asked := s.Runner().Sh(t.Context(), library+is); asked != nil || out == "yes" && readAll(t, s, "/var/lib/etcd/member/data") != "backup\n" {
						t.Fatalf("%d: it is said to be restored (%q, %v), and is not", at, out, asked)
					}
					if _, again := s.Runner().Sh(t.Context(), library+"if ! restored node1 node1=https://10.0.0.11:2380; then\n"+begin+"\nfi"); again != nil {
						t.Fatalf("%d (%v): %v", at, err, again)
					}
					if is := readAll(t, s, "/var/lib/etcd/member/data"); is != "backup\n" {
						t.Errorf("%d: the member has %q", at, is)
					}
					if kept := readAll(t, s, "/var/lib/etcd/before-1234/data"); kept != "former\n" {
						t.Errorf("%d: kept is %q", at, kept)
					}
				}
			})
		}
	}
}

// TestDoesNotBegin has a utility that fails, or that makes nothing, and a member that runs: what is there stays.
func TestDoesNotBegin(t *testing.T) {
	for _, shell := range runnertest.Shells() {
		for name, c := range map[string]struct{ utility, runs string }{"fails": {"#!/bin/sh\nexit 1\n", ""}, "makes nothing": {"#!/bin/sh\n", ""}, "runs": {copies, "pids() { echo etcd; }\n"}} {
			t.Run(shell+"/"+name, func(t *testing.T) {
				t.Parallel()
				s, library := before(t, shell, c.utility)
				if _, err := s.Runner().Sh(t.Context(), library+c.runs+begin); err == nil {
					t.Error("it ends well")
				}
				if out, err := s.Runner().Sh(t.Context(), library+is); out != "" || err != nil {
					t.Errorf("it is restored: %q, %v", out, err)
				}
				if text := readAll(t, s, "/var/lib/etcd/member/data"); text != "former\n" {
					t.Errorf("the member has %q", text)
				}
			})
		}
	}
}

func readAll(t *testing.T, s *runnertest.Sandbox, path string) string {
	t.Helper()
	text, err := os.ReadFile(s.Path(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
