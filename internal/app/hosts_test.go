package app_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	kubexm "github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/etcd/etcdtest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/util/fault"
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
		config = strings.Replace(config, "  kubernetes:", like(config, "  - {name: "+name+", address: "+addresses[name]+", roles: ["+roles+"]}\n  kubernetes:"), 1)
	}
	return config
}

// alone is a configuration with one master, and without a load balancer.
func alone(config string) string {
	return unbalanced(without(config, "node2", "node3", "lb1", "lb2"))
}

// unbalanced is a configuration without a load balancer.
func unbalanced(config string) string {
	return regexp.MustCompile(`loadBalancer: .*`).ReplaceAllString(config, "loadBalancer: {enabled: false}")
}

// swapped is a configuration in which the third master and the worker have changed their roles.
func swapped(config, masters string) string {
	return roles(roles(config, "node3", "worker"), "node4", masters)
}

// roles gives a host of a configuration other roles.
func roles(config, host, roles string) string {
	return regexp.MustCompile(`(\{name: `+host+`,.*roles: \[)[^]]*`).ReplaceAllString(config, "${1}"+roles)
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
		all["a worker for a master"] = [2]string{config, swapped(config, masters)}
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
	eachMove(t, []string{"row7/two masters", "row9/one master", "row21/a load balancer", "row21/a worker for a master", "etcd-elsewhere/members elsewhere"}, moved)
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

// moving notes what services do on hosts, of which those leave that a configuration does not have, or has as masters if they are none, or the other way round.
func (w *world) moving(text string) *chronicle {
	c := w.watched()
	c.leave = map[string]bool{}
	for n, h := range w.hosts {
		_, kubelet := h.Get("/etc/kubernetes/kubelet.conf")
		_, master := h.Get("/etc/kubernetes/admin.conf")
		c.leave[n] = !hostsOf(text)[n] || kubelet && master != regexp.MustCompile(`\{name: `+n+`,.*master`).MatchString(text)
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

// away takes a machine off the network. It comes back, started anew, with all that it had.
func (w *world) away(host string) (back func()) {
	h := w.hosts[host]
	w.burn(host)
	return func() {
		w.hosts[host] = h
		w.reach(h)
		h.Reboot()
	}
}

// fresh is another machine under the name of one that is gone.
func (w *world) fresh(host, id string) {
	h := runnertest.Debian12(host)
	h.SetIPs(w.ips(host)...)
	h.Put("/etc/machine-id", id+"\n", 0o444)
	w.settle(h)
	w.hosts[host] = h
	w.programs(h)
	w.connect(h)
	w.reach(h)
}

// reach lets a machine reach what runs on others.
func (w *world) reach(h *runnertest.Host) {
	for name, member := range w.members {
		if other := w.hosts[name]; other != nil && name != h.Name {
			conf := w.memberConf(other)
			h.Serve(w.socket(name, "2379"), func() (net.Conn, error) { return member.Dial(conf) })
		}
	}
	for name, dial := range w.servers {
		h.Serve(w.socket(name, w.ports[name+" kube-apiserver"]), dial)
	}
	if w.member31 != nil {
		w.reachEtcd31(h)
	}
}

// TestLost gives up machines that are gone, and lets others take their names.
func TestLost(t *testing.T) {
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
	a.MayRestart = func(_ context.Context, p *app.Proposal) error {
		if !slices.Equal(p.Leaving, []string{host}) || !slices.Equal(p.Lost, p.Leaving) || p.Rejoin != nil {
			t.Errorf("leaving: %v, lost: %v, joining again: %v", p.Leaving, p.Lost, p.Rejoin)
		}
		return nil
	}
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
			other.Serve(w.socket(host, port), nil)
		}
	}
	w.moved = maps.Clone(w.moved)
	if w.moved == nil {
		w.moved = map[string]string{}
	}
	w.moved[host] = address
	if member := w.members[host]; member != nil && len(w.members) > 1 { // the others do not find it
		w.etcds.Set(member, func(m *etcdtest.Member) { m.Down = true })
	}
	w.hosts[host].SetIPs(w.ips(host)...)
}

// TestReaddressed moves machines to other addresses, and checks that the cluster is as if they had always been there.
func TestReaddressed(t *testing.T) {
	for _, name := range []string{"row1", "row2", "row7", "row9", "row21", "row1-ipv6", "row9-ipv6"} {
		for _, host := range []string{"node1", "node2", "node4", "lb1"} {
			if !hostsOf(row(t, name))[host] {
				continue
			}
			t.Run(name+"/"+host, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) { readdressed(t, name, host, 0) })
			})
		}
	}
}

// formerKept counts how often a machine got a former address again.
func (w *world) formerKept() (n int) {
	for _, h := range w.hosts {
		for _, l := range h.Log() {
			if strings.HasPrefix(l, "former address") {
				n++
			}
		}
	}
	return n
}

// TestMixedUp gives two machines the addresses of each other in the configuration: neither is taken for the other.
func TestMixedUp(t *testing.T) {
	for _, pair := range [][2]string{{"node4", "node5"}, {"node2", "node3"}, {"node2", "node4"}} {
		bubble(t, func(t *testing.T) {
			one, other := pair[0], pair[1]
			w := newWorld(t, joinedBy(row(t, "row9"), "node5 worker"), "")
			_, err := w.attempt(t.Context()).create()
			w.must(err)
			before := w.snapshot()
			text, err := os.ReadFile(w.file)
			w.must(err)
			swap := strings.NewReplacer(addresses[one]+",", addresses[other]+",", addresses[other]+",", addresses[one]+",")
			w.configure(swap.Replace(string(text)))
			w.hosts[one], w.hosts[other] = w.hosts[other], w.hosts[one]
			a := w.attempt(t.Context())
			if _, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil); err == nil || !strings.Contains(err.Error(), "is the machine of host") {
				t.Errorf("%s and %s: %v", one, other, err)
			}
			w.hosts[one], w.hosts[other] = w.hosts[other], w.hosts[one]
			same(t, "hosts that were mixed up", before, w.snapshot())
		})
	}
}

// TestKilledReaddressed kills kubexm meanwhile, and lets it go on.
func TestKilledReaddressed(t *testing.T) {
	killedReaddressed(t, 1)
}

// TestFaultsKilledReaddressed does so more often.
func TestFaultsKilledReaddressed(t *testing.T) { killedReaddressed(t, 8) }

func killedReaddressed(t *testing.T, times int) {
	r := rand.New(rand.NewPCG(*seed, 0))
	for name, host := range map[string]string{"row1": "node1", "row2": "node1", "row9": "node2"} {
		for range times {
			killed := 1 + r.IntN(60)
			t.Run(fmt.Sprintf("%s/%d", name, killed), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) { readdressed(t, name, host, killed) })
			})
		}
	}
}

func readdressed(t *testing.T, name, host string, killed int) {
	config := row(t, name)
	w := newWorld(t, config, "")
	_, err := w.attempt(t.Context()).create()
	w.must(err)
	former, address := w.at(host), w.like("10.0.0.61")
	w.moveTo(host, address)
	want := strings.Replace(config, former, address, 1)
	switch a := w.attempt(t.Context()); {
	case killed > 0:
		w.configure(want)
		a.killAt(killed)
		_, _ = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		w.apply()
	case host == "node4":
		w.configure(want)
		w.apply()
	default:
		_, err = a.App.ReplaceNode(a.ctx, a.Request, a.Observer, host, kubexm.Addresses{Address: address})
		w.must(err)
	}
	text, err := os.ReadFile(w.file)
	w.must(err)
	if strings.ReplaceAll(string(text), "'", "") != want {
		t.Errorf("the configuration is\n%s", text)
	}
	if lone := !several(config) && host == "node1"; lone != (w.formerKept() > 0) {
		t.Errorf("%d former addresses were kept", w.formerKept())
	}
	w.settled()
	w.verified()
	for n, h := range w.hosts {
		if strings.Contains(h.Snapshot(), former) {
			t.Errorf("%s still knows %s", n, former)
		}
	}
	for object := range strings.SplitSeq(w.everything(), "---\n") {
		if strings.Contains(object, former) {
			t.Errorf("the API still knows %s:\n%s", former, object)
		}
	}
}
