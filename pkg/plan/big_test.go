package plan_test

import (
	"fmt"
	"testing"

	"github.com/kubexm/kubexm/pkg/plan"
)

// big is a pipeline with 30 steps on each host, in all shapes.
func big(n int) plan.Pipeline {
	hosts := make([]string, n)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("node%04d", i)
	}
	var tasks, flow []plan.Part
	for i := range 5 {
		tasks = append(tasks, task(fmt.Sprintf("t%d", i), hosts, "one", "two", "three"))
		flow = append(flow, task(fmt.Sprintf("f%d", i), hosts, "one", "two", "three"))
	}
	return plan.Pipeline{Name: "big", Parts: append(tasks, plan.PerHost(flow), task("last", hosts[:1], "end"))}
}

// TestEdgesAreLinear doubles the hosts.
func TestEdgesAreLinear(t *testing.T) {
	count := func(hosts int) (nodes, edges int) {
		g, err := plan.New(big(hosts))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range g.Nodes {
			edges += len(n.After)
		}
		return len(g.Nodes), edges
	}
	n1, e1 := count(100)
	n2, e2 := count(200)
	if e2 > 2*e1+10 || n2 > 2*n1+10 || e1 > 2*n1 {
		t.Errorf("100 hosts: %d nodes, %d edges; 200 hosts: %d nodes, %d edges", n1, e1, n2, e2)
	}
}

func BenchmarkPlan1000Hosts(b *testing.B) {
	p := big(1000)
	for b.Loop() {
		if _, err := plan.New(p); err != nil {
			b.Fatal(err)
		}
	}
}
