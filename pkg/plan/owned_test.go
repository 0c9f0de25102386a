package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step"
)

// TestOwned lists what all steps on a host own, those that others delegate to it too, before the first of them.
func TestOwned(t *testing.T) {
	file := func(p string) step.Step { return step.File{Path: p, Mode: 0o644} }
	late := map[string][]string{}
	g, err := plan.New(plan.Pipeline{Name: "p", Parts: []plan.Part{
		plan.Task{Name: "t", Hosts: []string{"a", "b"}, Steps: func(h string) []step.Step {
			return []step.Step{step.Inventory{With: []step.File{{Path: "/own"}}, Has: []string{"path /old"}}, file("/" + h), plan.On("a", file("/for-"+h)), step.With(file("/z"), step.Options{})}
		}},
		plan.Late{Name: "late", Hosts: []string{"a", "c"}, Steps: func(h string, owned []string) []step.Step {
			late[h] = owned
			return []step.Step{step.Inventory{Owns: owned}}
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ofA := []string{"path /a", "path /for-a", "path /for-b", "path /z"}
	if diff := cmp.Diff(map[string][]string{"a": ofA, "c": nil}, late); diff != "" {
		t.Error(diff)
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		list, ok := n.Step.(step.Inventory)
		if !ok {
			continue
		}
		want := map[string][]string{"a": ofA, "b": {"path /b", "path /z"}}[n.Host]
		owns, err := json.Marshal(want)
		if diff := cmp.Diff(want, list.Owns); diff != "" || err != nil || !strings.Contains(string(n.Spec), string(owns)) {
			t.Errorf("%s: %s, %v", n.ID, diff, err)
		}
	}
}
