package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// drained is the file that says that kubexm took the pods off a node.
const drained = StateDir + "/drained"

// Drained is whether kubexm works on a node without pods.
type Drained string

// What of it is noted on the host.
const (
	NotDrained Drained = ""
	Cordoned   Drained = "cordoned" // by kubexm, so that whoever comes next lets pods back
	Begun      Drained = "begun"    // the node is not, or somebody else has cordoned it
)

// Drained returns what is noted.
func (r *Runner) Drained(ctx context.Context) (Drained, error) {
	out, err := r.Sh(ctx, "[ ! -e "+drained+" ] || { grep "+string(Begun)+" "+drained+" || echo "+string(Cordoned)+"; }")
	return Drained(out), err
}

// MarkDrained notes it: the file has all of the former text or of the new one, also after a power cut.
func (r *Runner) MarkDrained(ctx context.Context, is Drained) error {
	do := "rm -f " + drained
	if is != NotDrained {
		const beside = drained + ".new"
		do = "mkdir -p " + StateDir + "; echo " + string(is) + " >" + beside + "; sync " + beside + "; mv -f " + beside + " " + drained
	}
	_, err := r.Sh(ctx, "set -e; "+do+"; sync "+StateDir)
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

func liveKubelet(lines []string) (managers string, servers []string) {
	var conf map[string]any
	if err := yaml.Unmarshal([]byte(strings.Join(lines, "\n")), &conf); err != nil {
		return "", nil // the kubelet cannot read it either
	}
	given, _ := conf["clusterDNS"].([]any)
	for _, server := range given {
		servers = append(servers, fmt.Sprint(server))
	}
	return Managers(conf), servers
}
