//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/test/testbed"
)

// TestMatrix makes a cluster of three masters and a worker for each row of the
// deployment matrix that has several masters, proves it, breaks it, and takes it away.
// With E2E_REPORT=FILE the table in that file is brought up to date.
func TestMatrix(t *testing.T) {
	defer the.shrink(t)
	for i, row := range testbed.Rows {
		if row.Masters == 1 {
			continue // TestRows and TestVersions
		}
		t.Run(fmt.Sprint("row", i+1), func(t *testing.T) {
			the.resize(t, row.Nodes())
			if row.ExternalEtcd() {
				must(t, the.bed.RunEtcd(t.Context(), the.builder, the.nodes[row.Nodes()-1]))
			}
			c := newCluster(t, i+1, where{}, impatient)
			begin := time.Now()
			cycle(t, c)
			if row.ExternalEtcd() && !t.Failed() { // what the cluster stored is its owner's to remove
				c.run(t, "preflight", "-o", "json").fails(t, 3, "objects of another cluster, like /registry/")
			}
			if !t.Failed() {
				report(t, c, time.Since(begin))
			}
		})
	}
}

// resize gives the lab as many machines as a row needs.
func (l *lab) resize(t *testing.T, nodes int) {
	t.Helper()
	if len(l.nodes) > nodes {
		l.shrink(t)
	}
	all, err := l.bed.Up(t.Context(), testbed.Options{Nodes: nodes, OS: "mixed", Family: family()})
	must(t, err)
	l.nodes = all
}

// shrink leaves the two machines that other tests use.
func (l *lab) shrink(t *testing.T) {
	t.Helper()
	var more []string
	for _, n := range l.nodes[2:] {
		more = append(more, n.Name)
	}
	l.nodes = l.nodes[:2]
	if more != nil {
		must(t, l.bed.Down(t.Context(), more...))
	}
}

// masters, workers and balancers are the machines of a cluster by what they do.
func (c *cluster) masters() []testbed.Node { return the.nodes[:testbed.Rows[c.row-1].Masters] }

func (c *cluster) workers() []testbed.Node {
	end := len(the.nodes) - len(c.balancers())
	if c.externalEtcd() {
		end--
	}
	return the.nodes[len(c.masters()):end]
}

func (c *cluster) balancers() []testbed.Node {
	if testbed.Rows[c.row-1].External() {
		return the.nodes[len(the.nodes)-2:]
	}
	return nil
}

// externalEtcd reports whether the last machine is no host of the cluster, but runs its etcd.
func (c *cluster) externalEtcd() bool { return testbed.Rows[c.row-1].ExternalEtcd() }

// kubelets are the machines that are nodes of the cluster.
func (c *cluster) kubelets() []testbed.Node { return slices.Concat(c.masters(), c.workers()) }

// misfortune is something that happens to a cluster.
type misfortune struct {
	name  string
	begin func(t *testing.T)
	end   func(t *testing.T) // puts things right; nil: they come right by themselves
	lasts time.Duration
	dark  bool // nobody can answer before the end
}

// misfortunes are those of a cluster, in order.
func (c *cluster) misfortunes(t *testing.T) (all []misfortune) {
	row := testbed.Rows[c.row-1]
	add := func(name string, begin, end func(t *testing.T)) {
		all = append(all, misfortune{name: name, begin: begin, end: end, lasts: 8 * time.Second})
	}
	masters := c.masters()
	if row.Balancer == "off" { // workers know the first master alone
		masters = masters[1:]
	}
	for _, n := range masters { // each: one of them leads etcd
		add("power cut of "+n.Name,
			func(t *testing.T) { must(t, the.bed.Poweroff(t.Context(), n)) },
			func(t *testing.T) { must(t, the.bed.Start(t.Context(), n)) })
	}
	cut := masters[len(masters)-1]
	add("no network on "+cut.Name,
		func(t *testing.T) { must(t, the.bed.Cut(t.Context(), cut)) },
		func(t *testing.T) { must(t, the.bed.Heal(t.Context(), cut)) })
	all[len(all)-1].lasts = time.Minute // longer than connections and leases live
	balancers := slices.Clone(c.balancers())
	if len(balancers) == 2 && the.on(t, balancers[1], "ip -o addr show to "+the.bed.VIP()) != "" {
		slices.Reverse(balancers)
	}
	for i, n := range balancers { // the one that has the address first: it goes to the other one, and comes back
		if i == 0 {
			name := map[string]string{"kubexm-kh": "haproxy", "kubexm-kn": "nginx"}[row.Balancer]
			add(name+" stopped on "+n.Name,
				func(t *testing.T) { the.on(t, n, "systemctl stop "+name) },
				func(t *testing.T) { the.on(t, n, "systemctl start "+name) })
		}
		add("power cut of "+n.Name,
			func(t *testing.T) { must(t, the.bed.Poweroff(t.Context(), n)) },
			func(t *testing.T) { must(t, the.bed.Start(t.Context(), n)) })
	}
	if p := row.Balancer; p == "haproxy" || p == "nginx" {
		add(p+" killed on the worker", func(t *testing.T) { the.on(t, c.workers()[0], "pkill -9 -x "+p) }, nil)
	}
	add("all machines boot again", func(t *testing.T) {
		for _, n := range the.nodes {
			must(t, the.bed.Poweroff(t.Context(), n))
		}
	}, func(t *testing.T) { // together: members of etcd wait for each other while they boot
		var all errgroup.Group
		for _, n := range the.nodes {
			all.Go(func() error { return the.bed.Start(t.Context(), n) })
		}
		must(t, all.Wait())
	})
	all[len(all)-1].dark = true
	return all
}

// breaks lets each misfortune happen, watches the API server meanwhile as users on the
// worker see it, and waits until the cluster is whole again.
func breaks(t *testing.T, c *cluster) {
	defer c.unrelay(t)
	for _, m := range c.misfortunes(t) {
		t.Run(m.name, func(t *testing.T) {
			w := watch(t, c)
			m.begin(t)
			w.until(t, m.lasts)
			if !m.dark {
				w.answered(t)
			}
			if m.end != nil {
				m.end(t)
			}
			c.whole(t)
			c.relay(t)
			w.until(t, time.Second)
			seen := w.stop(t)
			t.Log(seen)
			c.away = append(c.away, fmt.Sprintf("%s: %.1f s", m.name, seen.gap.Seconds()))
		})
		if t.Failed() {
			return
		}
	}
}

// whole waits until kubexm itself finds nothing wrong with the cluster.
func (c *cluster) whole(t *testing.T) {
	t.Helper()
	var said *outcome
	for begin := time.Now(); time.Since(begin) < 3*time.Minute; time.Sleep(time.Second) {
		before := said
		if said = c.run(t, "status", "-o", "json"); said.code == 0 {
			if before != nil {
				t.Logf("whole after %.0f s; before: %s", time.Since(begin).Seconds(), before.stdout.String())
			}
			return
		}
	}
	t.Fatalf("the cluster does not become whole again: %s\n%s", said.stdout.String(), said.stderr.String())
}

// slowest names the three steps that made the creation of the cluster last longest.
func (c *cluster) slowest(t *testing.T) string {
	t.Helper()
	path, err := (&app.App{Workdir: c.work}).CriticalPath(app.Request{Name: c.name}, c.made.result.Run)
	must(t, err)
	slices.SortFunc(path, func(a, b engine.Leg) int { return cmp.Compare(b.Took, a.Took) })
	var parts []string
	for _, l := range path[:min(3, len(path))] {
		parts = append(parts, fmt.Sprintf("%s on %s %.0f s", l.Node.What, l.Node.Host, l.Took.Seconds()))
	}
	return strings.Join(parts, ", ")
}

// report brings the row's line in the table of the support matrix up to date.
func report(t *testing.T, c *cluster, took time.Duration) {
	t.Helper()
	file := os.Getenv("E2E_REPORT")
	if file == "" {
		return
	}
	row := testbed.Rows[c.row-1]
	line := fmt.Sprintf("| %d | %s | %s | %d | %s | %s | %.0f s | %s | %d | %d | %.0f s | %s | %s |", c.row, row.Kubernetes, row.Etcd, row.Masters, row.Balancer,
		strings.TrimPrefix(c.version(t), "v"), c.made.took.Seconds(), c.slowest(t), slices.Max(slices.Collect(maps.Values(c.made.result.RoundTrips))), c.sent>>20,
		took.Seconds(), strings.Join(c.away, "; "), time.Now().UTC().Format(time.DateOnly))
	text, err := os.ReadFile(file)
	must(t, err)
	lines := strings.Split(string(text), "\n")
	mine := func(l string) bool { return strings.HasPrefix(l, fmt.Sprintf("| %d | kube", c.row)) }
	at := slices.IndexFunc(lines, mine)
	if at < 0 { // after the rows before it, or after the table's head
		for i, l := range lines {
			var n int
			if _, err := fmt.Sscanf(l, "| %d | kube", &n); err == nil && n < c.row || strings.HasPrefix(l, "|-- |") {
				at = i
			}
		}
		if at < 0 {
			t.Fatalf("%s has no table whose head ends with |-- |", file)
		}
		lines = slices.Insert(lines, at+1, line)
	} else {
		lines[at] = line
	}
	must(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644))
}
