package plan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// do is a step that is only a name.
type do struct{ What string }

func (d do) String() string { return d.What }

func (do) Precheck(context.Context, *runner.Runner) (*step.Change, error) { return nil, nil }

func steps(names ...string) func(string) []step.Step {
	return func(string) []step.Step {
		var all []step.Step
		for _, n := range names {
			all = append(all, do{n})
		}
		return all
	}
}

func task(name string, hosts []string, names ...string) plan.Task {
	return plan.Task{Name: name, Hosts: hosts, Steps: steps(names...)}
}

func graph(t testing.TB, parts ...plan.Part) *plan.ExecutionGraph {
	t.Helper()
	g, err := plan.New(plan.Pipeline{Name: "p", Parts: parts})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// arrows lists the nodes with what they wait for.
func arrows(g *plan.ExecutionGraph) string {
	var b strings.Builder
	for _, n := range g.Nodes {
		fmt.Fprintf(&b, "%s <- %s\n", n.ID, strings.Trim(fmt.Sprint(n.After), "[]"))
	}
	return b.String()
}

type shape struct {
	parts []plan.Part
	want  string
}

// shapes are parts of a pipeline, and what each node of their graph waits for.
func shapes() map[string]shape {
	ab, abc := []string{"a", "b"}, []string{"a", "b", "c"}
	one := func(parts ...plan.Part) []plan.Part { return parts }
	gate := plan.NewGate("ready")
	tolerant := task("t", abc, "x")
	tolerant.MaxFailures = 1
	serial := plan.Batches{Part: task("s", abc, "x", "y")}
	check := func(string) step.Step { return do{"check"} }
	drained := func(hosts ...string) plan.Scope {
		return plan.Scope{Name: "up", Begin: task("drain", hosts, "x"), Part: task("t", hosts, "x"), End: task("ready", hosts, "x"), Finally: task("uncordon", hosts, "x")}
	}
	inScope := func(p plan.Part) plan.Part { return plan.Scope{Name: "up", Begin: task("b", ab[:1], "x"), Part: p} }
	return map[string]shape{
		"steps of a host in order, hosts side by side": {one(task("t", ab, "x", "y")), `
p/t/x@a <-
p/t/y@a <- p/t/x@a
p/t/x@b <-
p/t/y@b <- p/t/x@b
p/t/done <- p/t/y@a p/t/y@b`},
		"tasks one after the other": {one(task("t", ab, "x"), task("u", ab, "x")), `
p/t/x@a <-
p/t/x@b <-
p/t/done <- p/t/x@a p/t/x@b
p/u/x@a <- p/t/done
p/u/x@b <- p/t/done
p/u/done <- p/u/x@a p/u/x@b`},
		"one host needs no barrier": {one(task("t", ab[:1], "x"), task("u", ab[:1], "x")), `
p/t/x@a <-
p/u/x@a <- p/t/x@a`},
		"but one that tolerates a failure has one": {one(plan.Task{Name: "t", Hosts: ab[:1], MaxFailures: 1, Steps: steps("x")}), `
p/t/x@a <-
p/t/done <- p/t/x@a`},
		"a part may tolerate failures in each of its tasks": {one(plan.Tolerate(1, plan.PerHost{task("t", ab[:1], "x"), task("u", ab[:1], "x")}), task("v", ab[:1], "x")), `
p/t/x@a <-
p/t/done <- p/t/x@a
p/u/x@a <- p/t/done
p/u/done <- p/u/x@a
p/v/x@a <- p/u/done`},
		"tasks without hosts or steps are passed through": {one(task("t", ab[:1], "x"), task("none", nil, "x"), task("empty", ab), plan.Module{}, plan.Parallel{}, plan.PerHost{}, task("u", ab[:1], "x")), `
p/t/x@a <-
p/u/x@a <- p/t/x@a`},
		"parallel": {one(task("t", ab[:1], "x"), plan.Parallel{task("u", ab[:1], "x"), plan.Module{Name: "m", Parts: one(task("v", ab[:1], "x"))}}, task("w", ab[:1], "x")), `
p/t/x@a <-
p/u/x@a <- p/t/x@a
p/m/v/x@a <- p/t/x@a
p/w/x@a <- p/u/x@a p/m/v/x@a`},
		"per host: nobody waits for others": {one(plan.PerHost{task("t", ab, "x"), plan.Module{Name: "m", Parts: one(task("u", ab, "x"))}}, task("v", ab, "x")), `
p/t/x@a <-
p/m/u/x@a <- p/t/x@a
p/t/x@b <-
p/m/u/x@b <- p/t/x@b
p/joined <- p/m/u/x@a p/m/u/x@b
p/v/x@a <- p/joined
p/v/x@b <- p/joined
p/v/done <- p/v/x@a p/v/x@b`},
		"per host: hosts of one part only": {one(plan.PerHost{task("t", ab[:1], "x"), task("u", ab[1:], "x")}), `
p/t/x@a <-
p/u/x@b <-
p/joined <- p/t/x@a p/u/x@b`},
		"batches of one": {one(serial), `
p/s/x@a <-
p/s/y@a <- p/s/x@a
p/s/x@b <- p/s/y@a
p/s/y@b <- p/s/x@b
p/s/x@c <- p/s/y@b
p/s/y@c <- p/s/x@c`},
		"batches of two, in an order": {one(plan.Batches{Size: 2, Order: []string{"e", "z", "b"}, Part: task("s", []string{"a", "b", "c", "d", "e"}, "x")}), `
p/s/x@b <-
p/s/x@e <-
p/s/done <- p/s/x@b p/s/x@e
p/s/x@a <- p/s/done
p/s/x@c <- p/s/done
p/s/done-2 <- p/s/x@a p/s/x@c
p/s/x@d <- p/s/done-2`},
		"batches with a gate": {one(task("t", ab[:1], "x"), plan.Module{Name: "m", Parts: one(plan.Batches{Gate: check, Part: task("s", ab, "x")})}), `
p/t/x@a <-
p/m/batch-1/enter <- p/t/x@a
p/m/batch-1/before/check@a <- p/m/batch-1/enter
p/m/s/x@a <- p/m/batch-1/before/check@a
p/m/batch-1/after/check@a <- p/m/s/x@a
p/m/batch-2/enter <- p/m/batch-1/after/check@a
p/m/batch-2/before/check@b <- p/m/batch-2/enter
p/m/s/x@b <- p/m/batch-2/before/check@b
p/m/batch-2/after/check@b <- p/m/s/x@b`},
		"batches of hosts on their own": {one(plan.Batches{Size: 2, Part: plan.PerHost{task("t", abc, "x"), task("u", abc, "x")}}), `
p/t/x@a <-
p/u/x@a <- p/t/x@a
p/t/x@b <-
p/u/x@b <- p/t/x@b
p/joined <- p/u/x@a p/u/x@b
p/t/x@c <- p/joined
p/u/x@c <- p/t/x@c`},
		"a scope": {one(task("a", ab, "x"), drained("w"), task("z", ab[:1], "x")), `
p/a/x@a <-
p/a/x@b <-
p/a/done <- p/a/x@a p/a/x@b
p/up/enter <- p/a/done
p/up/drain/x@w <- p/up/enter
p/up/t/x@w <- p/up/drain/x@w
p/up/ready/x@w <- p/up/t/x@w
p/up/finally <- p/up/ready/x@w
p/up/uncordon/x@w <- p/up/finally
p/up/leave <- p/up/ready/x@w p/up/uncordon/x@w
p/z/x@a <- p/up/leave`},
		"a scope for each host": {one(plan.PerHost{task("t", ab, "x"), plan.Scope{Name: "up", Part: task("u", ab, "x"), Finally: task("f", ab, "x")}}), `
p/t/x@a <-
p/up@a/enter <- p/t/x@a
p/up/u/x@a <- p/up@a/enter
p/up@a/finally <- p/up/u/x@a
p/up/f/x@a <- p/up@a/finally
p/up@a/leave <- p/up/u/x@a p/up/f/x@a
p/t/x@b <-
p/up@b/enter <- p/t/x@b
p/up/u/x@b <- p/up@b/enter
p/up@b/finally <- p/up/u/x@b
p/up/f/x@b <- p/up@b/finally
p/up@b/leave <- p/up/u/x@b p/up/f/x@b
p/joined <- p/up@a/leave p/up@b/leave`},
		"a scope without a part is its finally alone": {one(plan.Scope{Name: "up", Begin: task("b", ab[:1], "x"), Part: task("t", nil, "x"), Finally: task("f", ab[:1], "x")}, plan.Scope{Name: "none", Part: plan.Module{}, Begin: task("b", ab[:1], "x")}), `
p/up/enter <-
p/up/finally <- p/up/enter
p/up/f/x@a <- p/up/finally
p/up/leave <- p/up/enter p/up/f/x@a`},
		"a scope waits for the gates of what is in it": {one(gate.Opens(task("api", ab[:1], "x")), plan.Parallel{task("t", ab[1:], "x"), inScope(inScope(gate.Holds(task("u", ab[1:], "x"))))}), `
p/api/x@a <-
p/t/x@b <- p/api/x@a
p/up/enter <- p/api/x@a
p/up/b/x@a <- p/up/enter
p/up/up/enter <- p/up/b/x@a p/api/x@a
p/up/up/b/x@a <- p/up/up/enter
p/up/up/u/x@b <- p/up/up/b/x@a p/api/x@a`},
		"but not for gates inside": {one(inScope(plan.Module{Parts: one(gate.Opens(task("api", ab[:1], "x")), gate.Holds(task("u", ab[1:], "x")))})), `
p/up/enter <-
p/up/b/x@a <- p/up/enter
p/up/api/x@a <- p/up/b/x@a
p/up/u/x@b <- p/up/api/x@a`},
		"per host keeps batches": {one(plan.PerHost{task("t", abc, "x"), serial}), `
p/t/x@a <-
p/s/x@a <- p/t/x@a
p/s/y@a <- p/s/x@a
p/t/x@b <-
p/s/x@b <- p/t/x@b p/s/y@a
p/s/y@b <- p/s/x@b
p/t/x@c <-
p/s/x@c <- p/t/x@c p/s/y@b
p/s/y@c <- p/s/x@c
p/joined <- p/s/y@a p/s/y@b p/s/y@c`},
		"per host has a barrier for each tolerant host": {one(plan.PerHost{tolerant}), `
p/t/x@a <-
p/t/done <- p/t/x@a
p/t/x@b <-
p/t/done-2 <- p/t/x@b
p/t/x@c <-
p/t/done-3 <- p/t/x@c
p/joined <- p/t/done p/t/done-2 p/t/done-3`},
		"gates": {one(plan.Parallel{gate.Opens(task("api", ab[:1], "x")), plan.PerHost{task("t", abc[1:], "x"), gate.Holds(task("u", abc[1:], "x"))}}), `
p/api/x@a <-
p/t/x@b <-
p/u/x@b <- p/t/x@b p/api/x@a
p/t/x@c <-
p/u/x@c <- p/t/x@c p/api/x@a
p/joined <- p/u/x@b p/u/x@c`},
		"if": {one(plan.If(true, task("t", ab[:1], "x")), plan.If(false, task("u", ab[:1], "x"))), `
p/t/x@a <-`},
	}
}

func TestShapes(t *testing.T) {
	for name, c := range shapes() {
		t.Run(name, func(t *testing.T) {
			want := strings.TrimPrefix(c.want, "\n") + "\n"
			got := strings.ReplaceAll(arrows(graph(t, c.parts...)), "<- \n", "<-\n")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("want (-), have (+):\n%s", diff)
			}
		})
	}
}

func TestDelegation(t *testing.T) {
	g := graph(t, plan.Task{Name: "t", Hosts: []string{"w1", "w2"}, Steps: func(string) []step.Step {
		return []step.Step{
			plan.On("m1", do{"drain"}),
			do{"upgrade"},
			step.With(plan.On("m1", do{"uncordon"}), step.Options{Timeout: time.Minute, Limit: "few"}),
			plan.On("m1", step.With(do{"label"}, step.Options{Timeout: time.Second})),
		}
	}})
	want := map[plan.ID][2]string{
		"p/t/drain-for-w1@m1": {"m1", "w1"}, "p/t/upgrade@w1": {"w1", "w1"}, "p/t/uncordon-for-w1@m1": {"m1", "w1"}, "p/t/label-for-w1@m1": {"m1", "w1"},
		"p/t/drain-for-w2@m1": {"m1", "w2"}, "p/t/upgrade@w2": {"w2", "w2"}, "p/t/uncordon-for-w2@m1": {"m1", "w2"}, "p/t/label-for-w2@m1": {"m1", "w2"},
	}
	got := map[plan.ID][2]string{}
	for _, n := range g.Nodes {
		if n.Barrier() {
			continue
		}
		got[n.ID] = [2]string{n.Host, n.Subject()}
		if n.Kind != "plan_test.do" {
			t.Errorf("%s is of kind %s", n.ID, n.Kind)
		}
		if o := step.OptionsOf(n.Step); n.What == "uncordon" && (o.Timeout != time.Minute || o.Limit != "few") || n.What == "label" && o.Timeout != time.Second {
			t.Errorf("%s has options %+v", n.ID, o)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"m1", "w1", "w2"}, g.Hosts()); diff != "" {
		t.Error(diff)
	}
}

type unmarshallable struct {
	do
	F func()
}

func TestFaults(t *testing.T) {
	_, err := plan.New(plan.Pipeline{Name: "p", Parts: []plan.Part{
		task("t", []string{"a"}, "x", "x"),
		plan.Task{Name: "u", Hosts: []string{"a"}, Steps: func(string) []step.Step { return []step.Step{unmarshallable{do: do{"bad"}}} }},
		plan.NewGate("never").Holds(task("v", []string{"a"}, "x")),
	}})
	for _, want := range []string{"p/t/x@a: two steps with one description", "p/u/bad@a: json: unsupported type", `p: waits for the gate "never" that no earlier part opens`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// TestDigestFollowsSpec has steps that differ in one field only.
func TestDigestFollowsSpec(t *testing.T) {
	file := func(text string) plan.Node {
		g := graph(t, plan.Task{Name: "t", Hosts: []string{"a"}, Steps: func(string) []step.Step {
			return []step.Step{step.File{Path: "/etc/x", Content: step.Content(text), Mode: 0o600}}
		}})
		return g.Nodes[0]
	}
	a, again, b := file("secret one"), file("secret one"), file("secret two")
	if a.Digest == "" || a.Digest != again.Digest || a.Digest == b.Digest || bytes.Equal(a.Spec, b.Spec) {
		t.Errorf("digests %s %s %s", a.Digest, again.Digest, b.Digest)
	}
	if strings.Contains(string(a.Spec), "secret") {
		t.Errorf("the plan shows content: %s", a.Spec)
	}
}

// TestNoOracle tries a list of passwords on the digests in a plan. With a key that they do not have, guesses are worth nothing.
func TestNoOracle(t *testing.T) {
	file := func(password string) step.File {
		return step.File{Path: "/etc/login", Content: step.Content("password: " + password + "\n"), Mode: 0o600}
	}
	parts := func(password string) []plan.Part {
		return []plan.Part{plan.Task{Name: "t", Hosts: []string{"a"}, Steps: func(string) []step.Step { return []step.Step{file(password)} }}}
	}
	told := func(password string, key []byte) string {
		g, err := plan.New(plan.Pipeline{Name: "p", Key: key, Parts: parts(password)})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	guess := func(text string) (found string) {
		for _, password := range []string{"123456", "letmein", "hunter2", "secret"} {
			digest, err1 := step.Digest(file(password))
			plain, err2 := json.Marshal(file(password).Content)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			if text == told(password, nil) || strings.Contains(text, digest) || strings.Contains(text, string(plain)) {
				found = password
			}
		}
		return found
	}
	if found := guess(told("hunter2", nil)); found != "hunter2" {
		t.Errorf("the test finds %q in a plan without a key", found)
	}
	one := told("hunter2", []byte("key"))
	if found := guess(one); found != "" {
		t.Errorf("the plan tells the password %q", found)
	}
	if one != told("hunter2", []byte("key")) || one == told("hunter3", []byte("key")) {
		t.Error("digests do not follow the content")
	}
}

func TestDrawings(t *testing.T) {
	g := graph(t, plan.Module{Name: "infra", Parts: []plan.Part{
		task("etcd", []string{"m1", "m2"}, "file /etc/etcd.conf", "service etcd"),
		plan.PerHost{task("join", []string{"w1"}, `say "hello"`), plan.Task{Name: "mark", Hosts: []string{"w1"}, MaxFailures: 1, Steps: func(h string) []step.Step {
			return []step.Step{plan.On("m1", do{"label " + h})}
		}}},
		plan.Batches{Gate: func(string) step.Step { return do{"healthy"} }, Part: plan.Scope{
			Name: "upgrade", Begin: task("drain", []string{"m1", "m2"}, "drain"), Part: task("kubelet", []string{"m1", "m2"}, "service kubelet"),
			Finally: task("uncordon", []string{"m1", "m2"}, "uncordon"),
		}},
	}})
	asJSON, err := json.MarshalIndent(g, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	draw := func(f func(*bytes.Buffer) error) []byte {
		var b bytes.Buffer
		if err := f(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name, got := range map[string][]byte{
		"graph.json":    append(asJSON, '\n'),
		"graph.txt":     draw(func(b *bytes.Buffer) error { return g.WriteText(b) }),
		"graph.mermaid": draw(func(b *bytes.Buffer) error { return g.WriteMermaid(b) }),
		"graph.dot":     draw(func(b *bytes.Buffer) error { return g.WriteDOT(b) }),
	} {
		golden.Equal(t, string(got), name)
	}
	var back plan.ExecutionGraph
	if err := json.Unmarshal(asJSON, &back); err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(back.Nodes, g.Nodes, func(a, b plan.Node) bool {
		return a.ID == b.ID && a.Barrier() == b.Barrier() && a.Subject() == b.Subject()
	}) {
		t.Error("a graph that was read back differs")
	}
}
