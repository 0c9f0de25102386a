package observe

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Check is one place of a cluster that names hosts: what it says, and what it is to say.
type Check struct {
	What   string `json:"what"`
	Where  string `json:"where"` // a host, or what else was asked
	Result Result `json:"result"`
	Found  string `json:"found"` // where the result is unknown: why
	Wanted string `json:"wanted,omitempty"`
}

// Result is how a Check ended.
type Result string

// The results of a Check.
const (
	OK      Result = "ok"
	Differs Result = "differs"
	Unknown Result = "unknown" // it could not be asked
)

// checks are what is easily left as it was when hosts come and go. Each makes a row for every place where that is written.
var checks = []struct {
	what string
	look func(*verification) []Check
}{
	{"member of etcd", etcdMembers},
	{"reaches etcd", externalEtcd},
	{"API server calls etcd at", etcdServers},
	{"certificate of API server", certificateNames},
	{"load balancer leads to", backEnds},
	{"load balancer has peers", peers},
	{"names in /etc/hosts", hostNames},
	{"former addresses", formerAddresses},
	{"endpoint leads to", endpoints},
	{"endpoint in pods leads to", podEndpoints},
	{"kubeconfigs call", kubeconfigs},
	{"kube-proxy calls", kubeProxy},
	{"kubeadm-config", kubeadmConfig},
	{"cluster-info", clusterInfo},
	{"node", nodes},
	{"machines kept out", lostMachines},
	{"service kubernetes leads to", apiService},
	{"lease is held by", leases},
}

// verification is all that was asked for the checks.
type verification struct {
	*look
	Wanted

	said    map[string]said              // by host
	mute    map[string]error             // why a host said nothing
	served  map[string]*x509.Certificate // by master: what its API server shows
	silent  map[string]error             // why an API server showed nothing
	reached map[string][]string          // by master: endpoints of the external etcd that answer there
	objects *objects                     // nil: no API server gave them
	away    error                        // why
}

// Wanted is what the checks compare with besides the cluster.
type Wanted struct {
	ClusterConfiguration []byte // of kubeadm; nil: none
	Moving               bool   // hosts of the control plane may still be known by former addresses
}

// Verify goes through everything that is easily left as it was when hosts come and go, after a Look. It asks each host once, side by side, and an API
// server.
func Verify(ctx context.Context, c *cluster.Cluster, is cluster.Observed, hosts map[string]*runner.Runner, unreached map[string]error, w Wanted) (all []Check) {
	v := &verification{
		look: &look{Cluster: c, hosts: hosts, unreached: unreached, is: is}, Wanted: w,
		said: map[string]said{}, mute: map[string]error{}, served: map[string]*x509.Certificate{}, silent: map[string]error{}, reached: map[string][]string{},
	}
	v.ask(ctx)
	for _, check := range checks {
		for _, row := range check.look(v) {
			row.What, row.Found, row.Wanted = check.what, human.Line(row.Found), human.Line(row.Wanted)
			all = append(all, row)
		}
	}
	return all
}

func (v *verification) ask(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, h := range v.All() {
		r := v.hosts[h]
		if r == nil {
			v.mute[h] = v.unreached[h]
			v.silent[h] = v.unreached[h]
			continue
		}
		group.Go(func() error { v.hear(ctx, r); return nil })
		if v.Host(h).Is(v1alpha1.RoleMaster) {
			group.Go(func() error { v.meet(ctx, r); return nil })
		}
	}
	group.Go(func() error { v.objects, v.away = v.fetch(ctx); return nil })
	_ = group.Wait() // what fails is unknown
}

// kept puts an answer, or why there is none, in its place.
func kept[T any](mu *sync.Mutex, host string, answer T, err error, answers map[string]T, errs map[string]error) {
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		errs[host] = err
		return
	}
	answers[host] = answer
}

// unknown is a row of what could not be asked.
func unknown(where string, why error) Check {
	if why == nil {
		why = errors.New("it was not asked")
	}
	return Check{Where: where, Result: Unknown, Found: why.Error()}
}

// same compares texts.
func same(where, found, wanted string) Check {
	c := Check{Where: where, Result: OK, Found: found, Wanted: wanted}
	if found != wanted {
		c.Result = Differs
	}
	return c
}

// mostShown is how many things of a list are told.
const mostShown = 5

// lists compares lists, in whatever order they are. Of long ones it shows where they differ.
func lists(where string, found, wanted []string) Check {
	lacks, has := without(wanted, found), without(found, wanted)
	c := Check{Where: where, Result: OK, Found: listed(found), Wanted: listed(wanted)}
	if lacks == nil && has == nil {
		c.Found = c.Wanted
		return c
	}
	c.Result = Differs
	if max(len(found), len(wanted)) > mostShown {
		var differs []string
		if lacks != nil {
			differs = append(differs, "without "+human.Names(lacks, mostShown))
		}
		if has != nil {
			differs = append(differs, "with "+human.Names(has, mostShown))
		}
		c.Found = strings.Join(differs, ", ")
	}
	return c
}

// without returns what of a list is not in another one, each thing once.
func without(all, others []string) (rest []string) {
	for _, s := range all {
		if !slices.Contains(others, s) && !slices.Contains(rest, s) {
			rest = append(rest, s)
		}
	}
	return rest
}

func listed(all []string) string {
	if len(all) == 0 {
		return "nothing"
	}
	return human.Names(all, mostShown)
}

// calling compares lists of URLs or addresses. Those that are wanted are shown as the hosts that they lead to.
func (v *verification) calling(where string, found, wanted []string) Check {
	shown := func(all []string) (names []string) {
		for _, url := range all {
			if slices.Contains(wanted, url) {
				url = v.hostAt(url)
			}
			names = append(names, url)
		}
		return names
	}
	return lists(where, shown(found), shown(wanted))
}

// hostAt is the host to which a URL, or an address with or without a port, leads; that itself where there is none.
func (v *verification) hostAt(url string) string {
	address := strings.TrimPrefix(url, "https://")
	if ip, _, err := net.SplitHostPort(address); err == nil {
		address = ip
	}
	for _, h := range v.All() {
		if v.IP(h) == address {
			return h
		}
	}
	return url
}

// each asks what every one of hosts has said.
func (v *verification) each(hosts []string, ask func(host string, s said) []Check) (rows []Check) {
	for _, h := range hosts {
		if s, spoke := v.said[h]; spoke {
			rows = append(rows, ask(h, s)...)
		} else {
			rows = append(rows, unknown(h, v.mute[h]))
		}
	}
	return rows
}

// inAPI asks what the API server has.
func (v *verification) inAPI(ask func(o *objects) []Check) []Check {
	if v.objects == nil {
		return []Check{unknown(api, v.away)}
	}
	return ask(v.objects)
}

// api stands for the objects that any API server has.
const api = "API"

// masters are all of them.
func (v *verification) masters() []string { return v.All(v1alpha1.RoleMaster) }

// apiServers are where they listen.
func (v *verification) apiServers() (addresses []string) {
	for _, m := range v.masters() {
		addresses = append(addresses, v.APIAddress(m))
	}
	return addresses
}
