package etcd

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// TestBeginsAnew cuts a restoration before each of its commands on real shells: in the end the member has the data of the backup, and what was there before is kept.
func TestBeginsAnew(t *testing.T) {
	const utility = "#!/bin/sh\nwhile [ $# -gt 0 ]; do if [ \"$1\" = --data-dir ]; then mkdir -p \"$2/member\" && echo backup >\"$2/member/data\"; fi; shift; done\n"
	for _, shell := range runnertest.Shells() {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			for cut := range 12 {
				s := runnertest.NewSandbox(t, shell)
				s.Put("/var/lib/etcd/member/data", "former\n", 0o600)
				s.Put("/opt/etcdutl", utility, 0o755)
				library := runner.Inputs("D", "/var/lib/etcd", "ID", "1234") + runner.Script(scripts, "restore")
				const run = "begin_anew /opt/etcdutl /snapshot node1 https://10.0.0.11:2380 node1=https://10.0.0.11:2380"
				var dies strings.Builder // a command that is cut off before it has done anything
				for _, c := range []string{"mkdir", "rm", "mv", "sync"} {
					dies.WriteString(c + "() { n=$((n+1)); if [ $n -gt " + strconv.Itoa(cut) + " ]; then exit 7; fi; command " + c + " \"$@\"; }\n")
				}
				_, err := s.Runner().Sh(t.Context(), library+"n=0\n"+dies.String()+run)
				if out, asked := s.Runner().Sh(t.Context(), library+"if restored; then echo yes; fi"); asked != nil || out == "yes" && readAll(t, s, "/var/lib/etcd/member/data") != "backup\n" {
					t.Fatalf("cut %d: it is said to be restored (%q, %v), and is not", cut, out, asked)
				}
				if _, again := s.Runner().Sh(t.Context(), library+"if ! restored; then "+run+"; fi"); again != nil {
					t.Fatalf("cut %d (%v): %v", cut, err, again)
				}
				if is := readAll(t, s, "/var/lib/etcd/member/data"); is != "backup\n" {
					t.Errorf("cut %d: the member has %q", cut, is)
				}
				if kept := readAll(t, s, "/var/lib/etcd/before-1234/data"); kept != "former\n" {
					t.Errorf("cut %d: kept is %q", cut, kept)
				}
			}
		})
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
