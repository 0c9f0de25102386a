package runner

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// drained is the file that says that kubexm took the pods off a node.
const drained = StateDir + "/drained"

// Drained reports whether kubexm took the pods off the node that the host is.
func (r *Runner) Drained(ctx context.Context) (bool, error) {
	out, err := r.Sh(ctx, "[ ! -e "+drained+" ] || echo yes")
	return out == "yes", err
}

// MarkDrained notes on the host that kubexm takes the pods off it, so that whoever comes next lets them back.
func (r *Runner) MarkDrained(ctx context.Context, is bool) error {
	do := "rm -f "
	if is {
		do = "mkdir -p " + StateDir + "; : >"
	}
	_, err := r.Sh(ctx, "set -e; "+do+drained+"; sync "+StateDir)
	return err
}

// managed are the settings of a kubelet that it follows only for pods which start later, and without what it remembers of the
// settings before. What is reserved counts where processors or memory are given to single pods.
//
// Facts: https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies (and memory-manager, topology-manager).
var (
	managed = []string{
		"cpuManagerPolicy", "cpuManagerPolicyOptions", "memoryManagerPolicy", "reservedMemory", "topologyManagerPolicy",
		"topologyManagerPolicyOptions", "topologyManagerScope",
	}
	reserved = []string{"kubeReserved", "reservedSystemCPUs", "systemReserved"}
	byItself = []string{"none", "None", "container"} // values that these have by default
)

// Managers returns the settings of a KubeletConfiguration whose change needs a node without pods, as JSON; empty: all are as by
// default.
func Managers(conf map[string]any) string {
	is, keys := map[string]any{}, managed
	if conf["cpuManagerPolicy"] == "static" || conf["memoryManagerPolicy"] == "Static" {
		keys = slices.Concat(managed, reserved)
	}
	for _, k := range keys {
		if v, given := conf[k].(string); given && slices.Contains(byItself, v) || conf[k] == nil {
			continue
		}
		is[k] = conf[k]
	}
	if len(is) == 0 {
		return ""
	}
	text, _ := json.Marshal(is) // it came from JSON
	return string(text)
}

func liveManagers(lines []string) string {
	var conf map[string]any
	if err := yaml.Unmarshal([]byte(strings.Join(lines, "\n")), &conf); err != nil {
		return "" // the kubelet cannot read it either
	}
	return Managers(conf)
}
