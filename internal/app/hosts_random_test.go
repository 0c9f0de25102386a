package app_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRandomMoves lets hosts come and go at random, one after the other and several at a time. Each cluster is then as if it had been made so,
// and hosts that left are as they were before.
func TestRandomMoves(t *testing.T) {
	randomMoves(t, 1, false, "row7", "row9")
}

// TestFaultsRandomMoves does so more often, on more rows, and looks after each step.
func TestFaultsRandomMoves(t *testing.T) {
	randomMoves(t, 3, true, "row5", "row7", "row9", "row21", "row22", "etcd-elsewhere")
}

func randomMoves(t *testing.T, times int, each bool, names ...string) {
	for _, name := range names {
		for i := range times {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) { movedAtRandom(t, name, each, rand.New(rand.NewPCG(*seed, uint64(i)))) })
			})
		}
	}
}

func movedAtRandom(t *testing.T, name string, each bool, r *rand.Rand) {
	t.Logf("moves of -seed=%d", *seed)
	config := row(t, name)
	hosts := rolesIn(config)
	w, before := between(t, [2]string{config, manned(config, machines)})
	for left := 10; left > 0 || count(hosts, "master") == 2; {
		n := 1 + r.IntN(3)
		for range n {
			hosts = changedAtRandom(r, config, hosts)
		}
		left -= n
		t.Logf("%d changes: %s", n, strings.Join(hosts, "; "))
		text := manned(config, hosts)
		chronicle := w.moving(text)
		w.configure(text)
		w.apply()
		chronicle.apart(t)
		if each || left <= 0 { // nothing is made with two masters
			w.arrived(t, name, text, before)
		}
		if t.Failed() {
			return
		}
	}
	w.verified()
}

// machines are all that there are, with roles that they could have.
var machines = []string{
	"node1 worker", "node2 worker", "node3 worker", "node4 worker", "node5 worker", "node6 worker", "node7 worker", "node8 worker", "lb1 loadbalancer", "lb2 loadbalancer",
}

// rolesIn are the hosts of a configuration with their roles, each "node5 master, etcd".
func rolesIn(config string) (hosts []string) {
	for _, m := range regexp.MustCompile(`\{name: (\w+), .*roles: \[(.*)\]`).FindAllStringSubmatch(config, -1) {
		hosts = append(hosts, m[1]+" "+m[2])
	}
	return hosts
}

// manned is a configuration with other hosts.
func manned(config string, hosts []string) string {
	for h := range hostsOf(config) {
		config = without(config, h)
	}
	if config = joinedBy(config, hosts...); count(hosts, "master") == 1 {
		config = unbalanced(config)
	}
	return config
}

// count is how many hosts have a role.
func count(hosts []string, role string) (n int) {
	for _, h := range hosts {
		if hasRole(h, role) {
			n++
		}
	}
	return n
}

func hasRole(host, role string) bool {
	return slices.Contains(strings.Split(strings.ReplaceAll(host, ",", ""), " "), role)
}

// changedAtRandom makes one change: a host comes, at any place, one goes, or one has other roles.
func changedAtRandom(r *rand.Rand, config string, hosts []string) []string {
	roles := []string{"worker", "master, etcd"}
	switch {
	case otherEtcd(config):
		roles[1] = "master"
	case !kubeadmEtcd(config):
		roles = append(roles, "master, etcd", "master", "etcd", "etcd, worker")
	}
	for {
		is := slices.Clone(hosts)
		machine, _, _ := strings.Cut(machines[r.IntN(len(machines))], " ")
		at := slices.IndexFunc(is, func(h string) bool { return strings.HasPrefix(h, machine+" ") })
		gets := machine + " " + roles[r.IntN(len(roles))]
		if strings.HasPrefix(machine, "lb") {
			gets = machine + " loadbalancer"
		}
		switch {
		case at < 0:
			is = slices.Insert(is, r.IntN(len(is)+1), gets)
		case r.IntN(3) == 0:
			if was := hosts[at]; hasRole(was, "etcd") && count(hosts, "etcd") == 1 && hasRole(was, "master") != hasRole(gets, "master") {
				continue // it would have to leave, and is the only member
			}
			is[at] = gets
		default:
			is = slices.Delete(is, at, at+1)
		}
		if !slices.Equal(is, hosts) && mayBe(config, is) {
			return is
		}
	}
}

// mayBe reports whether a cluster can have hosts.
func mayBe(config string, hosts []string) bool {
	within := func(role string, least, most int) bool { n := count(hosts, role); return least <= n && n <= most }
	members, balancers := 1, 0
	if otherEtcd(config) {
		members = 0
	}
	if balanced(config) {
		balancers = 1
	}
	return within("master", 1, 5) && within("etcd", members, 5) && within("worker", 1, 4) && within("loadbalancer", balancers, 2*balancers)
}
