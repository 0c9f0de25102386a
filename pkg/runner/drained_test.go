package runner_test

import (
	"testing"

	"github.com/kubexm/kubexm/pkg/runner"
)

func TestManagers(t *testing.T) {
	for want, conf := range map[string]map[string]any{
		"": {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None", "topologyManagerScope": "container", "kubeReserved": map[string]any{"cpu": "1"}, "maxPods": 9},
		`{"cpuManagerPolicy":"static","kubeReserved":{"cpu":"1"}}`: {"cpuManagerPolicy": "static", "kubeReserved": map[string]any{"cpu": "1"}},
		`{"topologyManagerPolicy":"best-effort"}`:                  {"topologyManagerPolicy": "best-effort"},
	} {
		if got := runner.Managers(conf); got != want {
			t.Errorf("%v: %s, want %s", conf, got, want)
		}
	}
}
