//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/test/testbed"
)

// hostRows are the rows whose clusters get hosts and lose them.
var hostRows = []int{1, 2, 4, 5, 7, 9, 13, 14, 18, 21, 22}

// TestHosts lets hosts join clusters that run and leave them, while a user on the worker asks the API server every 100 ms and
// writes all the time: nothing that was written is lost, no pod on a host that stays restarts, machines that left are as they
// were before, and a second apply finds nothing to do. E2E_HOSTS=ROW chooses one row. A row ends with its first failure.
func TestHosts(t *testing.T) {
	defer the.shrink(t)
	for _, row := range hostRows {
		if only := os.Getenv("E2E_HOSTS"); only != "" && only != strconv.Itoa(row) {
			continue
		}
		t.Run(fmt.Sprint("row", row), func(t *testing.T) { comeAndGo(t, row) })
	}
}

// spares is how many machines there are beyond those of the row.
const spares = 2

func comeAndGo(t *testing.T, row int) {
	restoreMachines(t)
	is := testbed.Rows[row-1]
	the.resize(t, is.Nodes()+spares)
	all := the.nodes
	the.nodes = all[:is.Nodes()] // the configuration is of these
	if is.ExternalEtcd() {
		must(t, the.bed.RunEtcd(t.Context(), the.builder, the.nodes[len(the.nodes)-1]))
	}
	m := &moving{cluster: newCluster(t, row, where{}, impatient), spares: all[is.Nodes():], before: map[string]string{}, took: map[string]time.Duration{}}
	the.nodes = all
	m.full, m.balancer = m.read(t).Spec.Hosts, m.read(t).Spec.LoadBalancer
	for i, text := range the.snapshots(t) {
		m.before[all[i].Name] = text
	}
	for _, part := range []struct {
		name string
		do   func(*testing.T, *moving)
	}{
		{"grow", growAndShrink},
		{"worker", workerComesAndGoes},
		{"five", fiveMasters},
		{"first", firstGoes},
		{"leader", leaderBurns},
		{"address", addressesChange},
		{"roles", rolesChange},
		{"network", networkChanges},
		{"killed", killedMoving},
	} {
		if is.Masters == 1 && part.name != "worker" && part.name != "network" {
			continue // they are about several
		}
		done := t.Run(part.name, func(t *testing.T) {
			defer timed(t)()
			part.do(t, m)
		})
		if !done {
			return
		}
	}
	if m.made == nil {
		return // no part was chosen
	}
	m.unrelay(t)
	m.remove(t)
	m.left(t, sharedByAll, func(string) bool { return true }) // one that came again found what others had set
}

// growAndShrink leads from one master without a load balancer to all that the row has, in one run, and back.
func growAndShrink(t *testing.T, m *moving) {
	m.change(t, m.small())
	m.begin(t)
	m.move(t, m.growing(), 0)
	m.move(t, m.shrinking(), 0)
}

// workerComesAndGoes adds a worker, and takes it away although a disruption budget lets go of one pod at a time.
func workerComesAndGoes(t *testing.T, m *moving) {
	m.whole(t)
	m.move(t, m.comes("worker", m.spares[0]), moment)
	m.guests(t, m.spares[0])
	budget := m.budget(t)
	m.move(t, m.goes("worker", m.spares[0]), moment)
	budget(t)
}

// fiveMasters adds two masters at once, and takes them away.
func fiveMasters(t *testing.T, m *moving) {
	m.whole(t)
	m.move(t, m.comes("master", m.spares...), m.limit(moment))
	m.move(t, m.goes("master", m.spares...), m.limit(moment))
}

// firstGoes takes the first master away, which kubeadm began on, and adds it again as the last one.
func firstGoes(t *testing.T, m *moving) {
	m.whole(t)
	first := the.nodes[0]
	m.move(t, m.goes("master", first), m.limit(moment))
	m.move(t, m.comes("master", first), m.limit(moment))
}

// leaderBurns has the machine burn that leads etcd, gives it up, and adds a new one under its name.
func leaderBurns(t *testing.T, m *moving) {
	m.whole(t)
	victim := the.nodes[0]
	if !m.externalEtcd() {
		victim = m.leader(t)
	}
	t.Log("it is", victim.Name)
	lose := m.goes("master", victim)
	lose.args = append(lose.args, "--force")
	lose.prepare = func(t *testing.T) { must(t, the.bed.Poweroff(t.Context(), victim)) }
	m.gone = victim.Name
	m.move(t, lose, m.limit(lease))
	m.fenced(t, victim)
	must(t, the.bed.Burn(t.Context(), victim))
	must(t, the.bed.Start(t.Context(), victim))
	m.gone = ""
	text, err := the.bed.Snapshot(t.Context(), victim)
	must(t, err)
	m.before[victim.Name] = text
	come := m.comes("master", victim)
	come.args = append(come.args, "--host-keys", "accept-new")
	m.move(t, come, m.limit(moment))
}

// fenced switches a machine on again that was given up: what runs there does not become part of the cluster.
func (m *moving) fenced(t *testing.T, n testbed.Node) {
	t.Helper()
	must(t, the.bed.Start(t.Context(), n))
	for begin := time.Now(); time.Since(begin) < 40*time.Second; time.Sleep(2 * time.Second) {
		list, err := m.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err == nil && slices.ContainsFunc(list.Items, func(is corev1.Node) bool { return is.Name == n.Name }) {
			t.Fatalf("%s is a node again", n.Name)
		}
	}
	said := the.on(t, n, "systemctl is-active kubelet; journalctl -u kubelet --no-pager | grep -o 'kubexm-lost-machines.*' | head -n 1 | cut -c -300")
	t.Logf("the kubelet of %s that is back: %s", n.Name, said)
	if !strings.Contains(said, "kubexm-lost-machines") {
		t.Errorf("nothing denied it")
	}
	if !m.externalEtcd() {
		m.checkMembers(t)
	}
	must(t, the.bed.Poweroff(t.Context(), n))
}

// addressesChange gives the second master, and then a worker, another address, and then the former one again. Its other address stays, for the test.
func addressesChange(t *testing.T, m *moving) {
	onlyIPv4(t, "addresses are counted up and exchanged as those of IPv4 are")
	m.whole(t)
	worker := m.spares[0]
	m.move(t, m.comes("worker", worker), moment)
	for _, n := range []testbed.Node{the.nodes[1], worker} {
		other := netip.MustParseAddr(n.Address).As4()
		other[3] += 100
		for _, way := range [][2]string{{n.Address, netip.AddrFrom4(other).String()}, {netip.AddrFrom4(other).String(), n.Address}} {
			s := stroke{name: n.Name + " moves", args: []string{"replace", "node", n.Name, "--address", way[1], "--yes", "-o", "json"}, again: []string{n.Name}}
			s.prepare = func(t *testing.T) {
				// The address that is added last is the second one, which nobody takes for the machine's own.
				the.on(t, n, fmt.Sprintf(`dev=$(ip -4 -o addr | awk '$4 ~ /^%s\// {print $2; exit}')
route=$(ip route show default | head -n 1); ip addr add %s/24 dev "$dev" 2>/dev/null || true
sysctl -qw "net.ipv4.conf.$dev.promote_secondaries=1"; ip addr del %s/24 dev "$dev"; ip addr add %[3]s/24 dev "$dev"
[ -z "$route" ] || ip route replace $route`, strings.ReplaceAll(way[0], ".", `\.`), way[1], way[0]))
			}
			m.move(t, s, m.limit(moment))
		}
		the.on(t, n, fmt.Sprintf("ip addr del %s/24 dev $(ip -4 -o addr | awk '$4 ~ /^%s\\// {print $2; exit}')", netip.AddrFrom4(other), netip.AddrFrom4(other)))
	}
	m.move(t, m.goes("worker", worker), moment)
}

// rolesChange makes a master of a worker, on which nobody asks, and a worker of the last master, in one run, and takes it back.
func rolesChange(t *testing.T, m *moving) {
	m.whole(t)
	m.move(t, m.comes("worker", m.spares[0]), moment)
	was := m.read(t).Spec.Hosts
	hosts := slices.Clone(was)
	var i, j int
	for at, h := range hosts {
		switch h := h.(map[string]any); {
		case slices.Contains(h["roles"].([]any), any("master")):
			i = at
		case h["name"] == m.spares[0].Name:
			j = at
		}
	}
	one, other := maps.Clone(hosts[i].(map[string]any)), maps.Clone(hosts[j].(map[string]any))
	one["roles"], other["roles"] = other["roles"], one["roles"]
	hosts[i], hosts[j] = one, other
	both := []string{one["name"].(string), other["name"].(string)}
	for _, list := range [][]any{hosts, was} {
		s := stroke{name: "roles change", args: []string{"apply", "--yes", "-o", "json"}, again: both, prepare: func(t *testing.T) { m.change(t, set("hosts", list)) }}
		m.move(t, s, m.limit(moment))
	}
	m.move(t, m.goes("worker", m.spares[0]), moment)
}

// networkChanges gives all machines other addresses at once, as if they had been taken to another network, and then their former ones.
func networkChanges(t *testing.T, m *moving) {
	onlyIPv4(t, "addresses are counted up and exchanged as those of IPv4 are")
	m.whole(t)
	client := m.client(t)
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "before"}}
	_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), note, metav1.CreateOptions{})
	must(t, err)
	here := the.nodes[:len(m.full)]
	stay, full := m.with(t, "worker"), m.full
	for _, far := range []bool{true, false} {
		running := m.containers(t, stay, false)
		to := map[string]any{}
		for i, n := range here {
			was, other := n.Address, netip.MustParseAddr(n.Address).As4()
			if other[3] += 100; !far {
				other[3] -= 200
			}
			now := netip.AddrFrom4(other).String()
			script := fmt.Sprintf(`sleep 0.3; dev=$(ip -4 -o addr | grep -F " %s/" | head -n 1 | cut -d " " -f 2)
route=$(ip route show default | head -n 1); ip addr del %[1]s/24 dev "$dev"; ip addr add %[2]s/24 dev "$dev"
[ -z "$route" ] || ip route replace $route`, was, now)
			the.on(t, n, "systemd-run -q --collect bash -c '"+script+"'")
			to[was], here[i].Address = now, now
		}
		for _, n := range here {
			for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
				if _, err := the.bed.SSH(t.Context(), n, "true"); err == nil {
					break
				} else if time.Since(begin) > 30*time.Second {
					t.Fatal(err)
				}
			}
		}
		m.full = nil
		for _, h := range full {
			h := maps.Clone(h.(map[string]any))
			h["address"] = to[h["address"].(string)]
			m.full = append(m.full, h)
		}
		full = m.full
		m.change(t, set("hosts", full))
		done := m.run(t, "apply", "--yes", "-o", "json", "--host-keys", "accept-new").ok(t)
		t.Logf("the network changed: %d steps of the last run changed in %.0f s in all", done.result.Summary.Changed, done.took.Seconds())
		m.holds(t)
		_, err = m.client(t).CoreV1().ConfigMaps("default").Get(t.Context(), note.Name, metav1.GetOptions{})
		must(t, err)
		now := m.containers(t, stay, false)
		for _, n := range stay {
			for _, line := range running[n] {
				if !slices.Contains(now[n], line) {
					t.Errorf("on %s %q ended; now there are\n%s", n, line, strings.Join(now[n], "\n"))
				}
			}
			if left := the.on(t, the.node(t, n), "ip -o addr show dev lo label lo:kubexm; ip route show proto 157"); left != "" {
				t.Errorf("on %s is left: %s", n, left)
			}
		}
	}
	must(t, m.client(t).CoreV1().ConfigMaps("default").Delete(t.Context(), note.Name, metav1.DeleteOptions{}))
}

// killedMoving kills kubexm at random moments while hosts come and go. The same command again goes on.
func killedMoving(t *testing.T, m *moving) {
	m.whole(t)
	random := rand.New(rand.NewPCG(seed(t), 0))
	w := watch(t, m.cluster)
	first, worker := the.nodes[0], m.spares[0]
	for kills := 20; kills > 0; {
		for _, s := range []stroke{m.comes("worker", worker), m.goes("worker", worker), m.goes("master", first), m.comes("master", first), m.shrinking(), m.growing()} {
			s.prepare(t)
			kills -= m.killed(t, s, random, min(kills, 4))
			m.holds(t)
		}
	}
	t.Log(w.stop(t))
}

// killed kills a command at random moments a number of times, unless it ends before, and lets it go on to its end. It returns how often it was killed.
func (m *moving) killed(t *testing.T, s stroke, random *rand.Rand, most int) (kills int) {
	t.Helper()
	typical := m.took[s.name]
	if typical == 0 {
		typical = 40 * time.Second
	}
	for kills < most {
		delay := time.Duration(random.Int64N(int64(typical)))
		p := m.start(t, nil, s.args...)
		timer := time.AfterFunc(delay, func() { p.signal(syscall.SIGKILL) })
		o := p.wait(t)
		timer.Stop()
		if o.code != 128+int(syscall.SIGKILL) {
			o.ok(t)
			t.Logf("%s: it ended in %.1f s, before it was killed", s.name, o.took.Seconds())
			return kills
		}
		kills++
		last := "no event"
		if len(o.events) > 0 {
			e := o.events[len(o.events)-1]
			last = fmt.Sprintf("%d events, the last: %s %s on %s", len(o.events), e.Status, e.What, e.Host)
		}
		t.Logf("%s: killed after %.1f s and %s", s.name, o.took.Seconds(), last)
	}
	o := m.run(t, s.args...).ok(t)
	t.Logf("%s: went on in %.1f s, %d steps changed something", s.name, o.took.Seconds(), o.result.Summary.Changed)
	return kills
}

// comes adds hosts with a role, as a user would.
func (m *moving) comes(role string, nodes ...testbed.Node) stroke {
	s := stroke{name: fmt.Sprint(role, "s come: ", names(nodes)), args: []string{"add", "node"}, prepare: func(*testing.T) {}, strict: role == "worker"}
	for _, n := range nodes {
		s.args = append(s.args, n.Name+"="+n.Address)
	}
	roles := []any{role}
	if role == "master" && !m.externalEtcd() {
		roles = append(roles, "etcd")
	}
	for _, r := range roles {
		s.args = append(s.args, "--role", r.(string))
	}
	if family() == testbed.Dual {
		file := filepath.Join(the.dir, "come.yaml")
		s.args = []string{"add", "node", "--hosts", file}
		s.prepare = func(t *testing.T) { writeHosts(t, file, nodes, roles) }
	}
	s.args = append(s.args, "--yes", "-o", "json")
	return s
}

// goes takes hosts away.
func (m *moving) goes(role string, nodes ...testbed.Node) stroke {
	args := append([]string{"delete", "node"}, names(nodes)...)
	return stroke{name: fmt.Sprint(role, "s go: ", names(nodes)), args: append(args, "--yes", "-o", "json"), prepare: func(*testing.T) {}, strict: role == "worker"}
}

// growing leads from one master to all that the row has, by an edit of the configuration.
func (m *moving) growing() stroke {
	return stroke{name: "all come", args: []string{"apply", "--yes", "-o", "json"}, prepare: func(t *testing.T) {
		m.change(t, set("hosts", m.full), set("loadBalancer", m.balancer))
	}}
}

// shrinking leads back to one master, by an edit and a command: the load balancer goes with those for whom it was.
func (m *moving) shrinking() stroke {
	var gone []testbed.Node
	for _, n := range the.nodes {
		if m.beyondSmall(n.Name) {
			gone = append(gone, n)
		}
	}
	s := m.goes("other host", gone...)
	s.prepare = func(t *testing.T) { m.change(t, set("loadBalancer", map[string]any{"enabled": false})) }
	return s
}

// leader is the machine whose member leads etcd.
func (m *moving) leader(t *testing.T) testbed.Node {
	t.Helper()
	for _, s := range m.members(t) {
		if s.Leader == s.Member.ID {
			return the.node(t, s.Name)
		}
	}
	t.Fatal("nobody leads etcd")
	return testbed.Node{}
}

func names(nodes []testbed.Node) (all []string) {
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	return all
}

// node is the machine with a name, or with an address.
func (l *lab) node(t *testing.T, name string) testbed.Node {
	t.Helper()
	i := slices.IndexFunc(l.nodes, func(n testbed.Node) bool { return n.Name == name || slices.Contains(n.Addresses(), name) })
	if i < 0 {
		t.Fatalf("no machine %s", name)
	}
	return l.nodes[i]
}
