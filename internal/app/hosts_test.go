package app_test

import (
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	kubexm "github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/etcd/etcdtest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/racetest"
)

// without is a configuration without hosts.
func without(config string, hosts ...string) string {
	for _, h := range hosts {
		config = regexp.MustCompile(`(?m)^  - \{name: `+h+`,.*\n`).ReplaceAllString(config, "")
	}
	return config
}

// joinedBy is a configuration with further hosts, each "node5 master, etcd".
func joinedBy(config string, hosts ...string) string {
	for _, h := range hosts {
		name, roles, _ := strings.Cut(h, " ")
		config = strings.Replace(config, "  kubernetes:", "  - {name: "+name+", address: "+addresses[name]+", roles: ["+roles+"]}\n  kubernetes:", 1)
	}
	return config
}

// alone is a configuration with one master, and without a load balancer.
func alone(config string) string {
	return regexp.MustCompile(`loadBalancer: .*`).ReplaceAllString(without(config, "node2", "node3", "lb1", "lb2"), "loadBalancer: {enabled: false}")
}

// moves are pairs of configurations that differ in their hosts. A cluster is led from the first to the second, and back.
func moves(name, config string) map[string][2]string {
	masters := "master, etcd"
	if otherEtcd(config) {
		masters = "master"
	}
	all := map[string][2]string{"a worker": {config, joinedBy(config, "node5 worker")}}
	if several(config) {
		all["one master"] = [2]string{alone(config), config}
		all["five masters"] = [2]string{config, joinedBy(config, "node5 "+masters, "node6 "+masters)}
		all["two masters"] = [2]string{config, without(config, "node1")}
		all["another first master"] = [2]string{config, joinedBy(without(config, "node1"), "node5 "+masters)}
	}
	if balanced(config) {
		all["a load balancer"] = [2]string{without(config, "lb2"), config}
	}
	if name == "etcd-elsewhere" {
		all["two members"] = [2]string{config, joinedBy(config, "node5 etcd", "node6 etcd")}
		all["members elsewhere"] = [2]string{config, joinedBy(strings.Replace(config, "[etcd, worker]", "[worker]", 1), "node5 etcd", "node6 etcd")}
	}
	return all
}

// TestMoves adds hosts to clusters that run, and takes them away. Each cluster is then as if it had been made so, and hosts that left are as
// they were before.
func TestMoves(t *testing.T) {
	racetest.Slow(t)
	eachMove(t, []string{"row7/two masters", "row9/one master", "row21/a load balancer", "etcd-elsewhere/members elsewhere"}, moved)
}

// TestFaultsMoves does so with all.
func TestFaultsMoves(t *testing.T) { eachMove(t, nil, moved) }

// eachMove tests moves of some rows: those named, "row7/five masters", or all.
func eachMove(t *testing.T, only []string, test func(t *testing.T, name string, pair [2]string)) {
	for _, name := range []string{"row4", "row5", "row7", "row9", "row14", "row15", "row18", "row21", "row22", "row22-kubexm", "etcd-elsewhere"} {
		config := row(t, name)
		for what, pair := range moves(name, config) {
			if only == nil || slices.Contains(only, name+"/"+what) {
				t.Run(name+"/"+what, func(t *testing.T) {
					t.Parallel()
					bubble(t, func(t *testing.T) { test(t, name, pair) })
				})
			}
		}
	}
}

// between is a world with a cluster of the first configuration, and all hosts of both. It returns how the hosts were before.
func between(t *testing.T, pair [2]string) (w *world, before map[string]string) {
	w = newWorld(t, pair[0]+"\n# "+strings.Join(slices.Sorted(maps.Keys(hostsOf(pair[0]+pair[1]))), " "), "")
	before = map[string]string{}
	for n, h := range w.hosts {
		before[n] = h.Snapshot()
	}
	w.configure(pair[0])
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	return w, before
}

// moving notes what services do on hosts, of which those that a configuration does not have leave.
func (w *world) moving(text string) *chronicle {
	c := w.watched()
	c.leave = map[string]bool{}
	for n := range w.hosts {
		c.leave[n] = !hostsOf(text)[n]
		c.leave[n+" etcd"] = !regexp.MustCompile(`\{name: ` + n + `,.*etcd`).MatchString(text)
	}
	return c
}

// arrived wants a cluster to be as if it had been made with a configuration, and machines that are not part of it to be as before.
func (w *world) arrived(t *testing.T, name, text string, before map[string]string) {
	t.Helper()
	w.settled()
	if strings.Count(text, "[master") == 2 {
		return // nothing is made so
	}
	born(t, name, text, w.certs(name)).grown().same(t, "as if made so", w.image().grown())
	for n, h := range w.hosts {
		if !hostsOf(text)[n] {
			same(t, n+", which left", before[n], h.Snapshot())
		}
	}
}

func moved(t *testing.T, name string, pair [2]string) {
	w, before := between(t, pair)
	for _, text := range []string{pair[1], pair[0]} {
		chronicle := w.moving(text)
		w.configure(text)
		w.apply()
		chronicle.apart(t)
		if w.arrived(t, name, text, before); t.Failed() {
			return
		}
		w.verified()
	}
}

// TestKilledMoves kills kubexm at a node of a move, and lets it go on.
func TestKilledMoves(t *testing.T) {
	racetest.Slow(t)
	eachMove(t, []string{"row7/another first master", "row9/one master"}, killedMove(1))
}

// TestFaultsKilledMoves does so at many.
func TestFaultsKilledMoves(t *testing.T) {
	eachMove(t, []string{
		"row7/another first master", "row7/five masters", "row7/one master", "row9/one master", "row9/another first master", "row9/a worker",
		"row21/a load balancer", "row22/one master", "etcd-elsewhere/members elsewhere",
	}, killedMove(4))
}

// killedMove kills at some moments on the way there, and at as many on the way back.
func killedMove(most int) func(t *testing.T, name string, pair [2]string) {
	return func(t *testing.T, name string, pair [2]string) {
		for _, way := range [][2]string{pair, {pair[1], pair[0]}} {
			w, _ := between(t, way)
			w.configure(way[1])
			a := w.attempt(t.Context())
			res, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil)
			w.must(err)
			for _, m := range moments(t, res.Summary.Total, most) {
				if killedAt(t, name, way, m); t.Failed() {
					t.Fatalf("killed at node %d of the way to\n%s", m, way[1])
				}
			}
		}
	}
}

func killedAt(t *testing.T, name string, way [2]string, m int) {
	w, before := between(t, way)
	chronicle := w.moving(way[1])
	w.configure(way[1])
	a := w.attempt(t.Context())
	started := 0
	a.Event = func(ev engine.Event) {
		if ev.Status == engine.Started {
			if started++; started == m {
				a.kill()
			}
		}
	}
	_, _ = a.App.Apply(a.ctx, a.Request, a.Observer, nil) // what is skipped is no node that starts
	w.apply()
	chronicle.apart(t)
	w.arrived(t, name, way[1], before)
}

// grown leaves out what tells the master on which kubeadm began from those that joined.
func (i image) grown() image {
	began := regexp.MustCompile(`(?m)^(/etc/kubernetes/super-admin.conf|/var/lib/kubelet/pki/kubelet-client-(current|join).pem) .*\n(    .*\n)*|^ *"?path (/etc/kubernetes/(discovery.conf|kubeadm-join.yaml)|/var/lib/kubelet/pki/kubelet-client-(current|join).pem)"?,?\n`)
	for n, text := range i.hosts {
		i.hosts[n] = began.ReplaceAllString(text, "")
	}
	return i
}

// hostsOf are the hosts that a configuration names.
func hostsOf(config string) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`\{name: (\w+), address`).FindAllStringSubmatch(config, -1) {
		all[m[1]] = true
	}
	return all
}

// burn ends a machine for good.
func (w *world) burn(host string) {
	w.lose(host)
	delete(w.hosts, host)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.kubelets, host)
}

// fresh is another machine under the name of one that is gone.
func (w *world) fresh(host, id string) {
	h := runnertest.Debian12(host)
	h.SetAddr("eth0", w.at(host)+"/24")
	h.Put("/etc/machine-id", id+"\n", 0o444)
	w.settle(h)
	w.hosts[host] = h
	w.programs(h)
	w.connect(h)
	for name, member := range w.members {
		if other := w.hosts[name]; other != nil && name != host {
			conf := w.memberConf(other)
			h.Serve(w.at(name)+":2379", func() (net.Conn, error) { return member.Dial(conf) })
		}
	}
	for name, dial := range w.servers {
		h.Serve(w.at(name)+":"+w.ports[name+" kube-apiserver"], dial)
	}
	if w.member31 != nil {
		w.reachEtcd31(h)
	}
}

// TestLost gives up machines that are gone, and lets others take their names.
func TestLost(t *testing.T) {
	racetest.Slow(t)
	for _, name := range []string{"row7", "row9"} {
		for _, host := range []string{"node1", "node3", "node4"} {
			t.Run(name+"/"+host, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) { lost(t, name, host) })
			})
		}
	}
}

func lost(t *testing.T, name, host string) {
	config := joinedBy(row(t, name), "node5 worker")
	if host != "node4" {
		config = joinedBy(row(t, name), "node5 master, etcd", "node6 master, etcd") // an even number remains
	}
	w := newWorld(t, config, "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	w.burn(host)
	a := w.attempt(t.Context())
	a.Edit = &kubexm.Edit{Remove: []string{host}}
	if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(fault.Advice(err), "kubexm delete node "+host) {
		t.Fatalf("a machine that is out of reach is given up unasked: %v", err)
	}
	a = w.attempt(t.Context())
	a.Force, a.Edit = true, &kubexm.Edit{Remove: []string{host}}
	_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
	w.must(err)
	w.settled()
	w.verified()
	if objects := w.everything(); !strings.Contains(objects, "kubexm-lost-machines") || strings.Contains(objects, "kind: Node\nmetadata:\n  annotations:\n  name: "+host) {
		t.Errorf("no fence, or a node:\n%s", objects)
	}
	w.fresh(host, "fedcba9876543210fedcba9876543210")
	w.configure(config)
	w.apply()
	w.settled()
	w.verified()
}

// TestReplaced lets fresh machines take the place of those that burnt.
func TestReplaced(t *testing.T) {
	racetest.Slow(t)
	for _, name := range []string{"row7", "row9", "row22"} {
		for _, host := range []string{"node1", "node3", "node4"} {
			t.Run(name+"/"+host, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) { replaced(t, name, host) })
			})
		}
	}
}

func replaced(t *testing.T, name, host string) {
	config := row(t, name)
	w := newWorld(t, config, "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	w.burn(host)
	w.fresh(host, "fedcba9876543210fedcba9876543210")
	for range 2 {
		a := w.attempt(t.Context())
		if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(err.Error(), "host "+host+" is another machine than before") {
			t.Fatalf("another machine is taken for the one before: %v", err)
		}
	}
	a := w.attempt(t.Context())
	a.Replace = []string{host}
	_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
	w.must(err)
	w.settled()
	w.verified()
	if !strings.Contains(w.everything(), "kubexm-lost-machines") {
		t.Error("the old machine may come back")
	}
}

// moveTo gives a machine another address.
func (w *world) moveTo(host, address string) {
	for _, other := range w.hosts {
		for _, port := range append(slices.Clone(apiPorts), "2379") {
			other.Serve(w.at(host)+":"+port, nil)
		}
	}
	w.moved = map[string]string{host: address}
	if member := w.members[host]; member != nil { // the others do not find it
		w.etcds.Set(member, func(m *etcdtest.Member) { m.Down = true })
	}
	w.hosts[host].SetAddr("eth0", address+"/24")
}

// TestReaddressed moves machines to other addresses, and checks that the cluster is as if they had always been there.
func TestReaddressed(t *testing.T) {
	racetest.Slow(t)
	for _, name := range []string{"row7", "row9", "row21"} {
		for _, host := range []string{"node1", "node2", "node4"} {
			if host == "node4" && name != "row9" { // their only worker: its pods had nowhere to go
				continue
			}
			t.Run(name+"/"+host, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) { readdressed(t, name, host) })
			})
		}
	}
}

func readdressed(t *testing.T, name, host string) {
	const address = "10.0.0.61"
	config := row(t, name)
	w := newWorld(t, config, "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	w.moveTo(host, address)
	a := w.attempt(t.Context())
	_, err = a.App.ReplaceNode(a.ctx, a.Request, a.Observer, host, kubexm.Addresses{Address: address})
	w.must(err)
	text, err := os.ReadFile(w.file)
	w.must(err)
	if want := strings.Replace(config, addresses[host], address, 1); string(text) != want {
		t.Errorf("the configuration is\n%s", text)
	}
	w.settled()
	w.verified()
	for n, h := range w.hosts {
		if strings.Contains(h.Snapshot(), addresses[host]) {
			t.Errorf("%s still knows %s", n, addresses[host])
		}
	}
	for object := range strings.SplitSeq(w.everything(), "---\n") {
		if strings.Contains(object, addresses[host]) {
			t.Errorf("the API still knows %s:\n%s", addresses[host], object)
		}
	}
}
