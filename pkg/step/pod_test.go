package step_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
)

// podded is a static pod that reads its configuration again.
func podded(frame, config string) step.Pod {
	reload := step.Reload{
		Files: []step.File{{Path: proxyConf, Content: step.Content(config), Mode: 0o644}}, Frame: step.Content(frame), Check: "proxy -t", Signal: "HUP",
	}
	return step.PodFrom("proxy", reload, "/etc/mounted", "proxy", func(command []string) []byte { return fmt.Appendf(nil, "%s %q", frame, command) })
}

// kubeletRuns starts the pod of a host as the kubelet does, and answers crictl.
func kubeletRuns(t *testing.T, h *runnertest.Host, starts bool) {
	t.Helper()
	reads := func() {
		text, _ := h.Get(proxyConf)
		h.Put(loaded, fmt.Sprintf("%x  proxy.conf\n", sha256.Sum256([]byte(text))), 0o644)
	}
	if starts {
		reads()
	}
	h.Put("/usr/local/bin/crictl", "ELF", 0o755)
	h.Programs["crictl"] = func(c *runnertest.Call) int {
		switch line := strings.Join(c.Args[1:], " "); {
		case strings.HasPrefix(line, "ps -q --name ^proxy$") && starts:
			c.Printf("c1\n")
		case strings.HasPrefix(line, "exec c1 sh -ec cd /etc/mounted; proxy -t"):
			if text, _ := h.Get(proxyConf); strings.Contains(text, "bad") {
				return c.Failf(1, "unknown word: bad")
			}
			reads()
			h.Put("/reloads", "", 0o644)
		}
		return 0
	}
}

// TestPod changes what a static pod reads, and what it is.
func TestPod(t *testing.T) {
	for name, c := range map[string]struct {
		is         step.Pod
		idle       bool   // no container runs
		write      string // by hand, beforehand
		diff       string
		reload     bool
		restarts   bool
		unreadable bool
	}{
		"nothing":                         {is: podded("a", "one\n")},
		"other configuration":             {is: podded("a", "two\n"), diff: "-one\n+two\nproxy: reload\n", reload: true},
		"other configuration, not there":  {is: podded("a", "two\n"), idle: true, diff: "-one\n+two\n"},
		"other frame":                     {is: podded("b", "two\n"), diff: "-one\n+two\n", restarts: true},
		"killed after the file":           {is: podded("a", "two\n"), write: "two\n", diff: "proxy: " + proxyConf + " \"", reload: true},
		"edited":                          {is: podded("a", "one\n"), write: "two\n", diff: "-two\n+one\nproxy: reload\n", reload: true},
		"of no use to the program at all": {is: podded("a", "bad\n"), diff: "+bad\n", unreadable: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostFor(nil)
			if err := apply(t, h, podded("a", "one\n")); err != nil {
				t.Fatal(err)
			}
			kubeletRuns(t, h, !c.idle)
			if c.write != "" {
				h.Put(proxyConf, c.write, 0o644)
			}
			change := check(t, h, c.is)
			if (change == nil) != (c.diff == "") {
				t.Fatalf("got %+v, want %q", change, c.diff)
			}
			if change == nil {
				return
			}
			if !strings.Contains(change.Diff, c.diff) || (change.Restarts != nil) != c.restarts {
				t.Errorf("restarts %s, diff:\n%s", change.Restarts, change.Diff)
			}
			err := change.Run(t.Context())
			if _, reloaded := h.Get("/reloads"); (err != nil) != c.unreadable || reloaded != c.reload {
				t.Errorf("reloaded: %t, %v", reloaded, err)
			}
			if c.unreadable {
				if err := change.Rollback(t.Context()); err != nil {
					t.Error(err)
				}
				c.is = podded("a", "one\n")
			}
			if _, noted := h.Get(loaded); noted == (c.restarts || c.idle) {
				t.Error("a pod that has not started has noted what it reads")
			}
			if again := check(t, h, c.is); again != nil && !c.idle {
				t.Errorf("there is something to do:\n%s", again.Diff)
			}
		})
	}
}
