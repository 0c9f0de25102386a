package app_test

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestSharedBalancers makes a cluster whose load balancers, or whose virtual address,
// another cluster has: it is refused before anything is touched.
func TestSharedBalancers(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(w *world)
		want  []string
	}{
		"another cluster's machines": {func(w *world) {
			for _, lb := range []string{"lb1", "lb2"} {
				w.hosts[lb].Put("/var/lib/kubexm/env", "cluster=first\n", 0o644)
			}
		}, []string{"lb1  owner: found part of the kubexm cluster first", "lb2  owner: found part of the kubexm cluster first"}},
		"another cluster's address": {func(w *world) {
			for _, h := range w.hosts {
				h.Blocked = nil
			}
		}, []string{"lb1  vip: found 10.0.0.100 answers", "lb2  vip: found 10.0.0.100 answers"}},
		"somebody's load balancer": {func(w *world) {
			lb := w.hosts["lb2"]
			lb.TakePort(8443, "nginx")
			lb.Put("/usr/sbin/keepalived", "ELF", 0o755)
			lb.Put("/usr/lib/systemd/system/keepalived.service", "[Service]\nExecStart=/usr/sbin/keepalived\n", 0o644)
			_, err := lb.Runner().Sh(w.Context(), "systemctl start keepalived")
			w.must(err)
			lb.ClearLog()
		}, []string{"lb2  load-balancer: found somebody's nginx on port 8443, keepalived"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, "row21"), "")
				test.spoil(w)
				_, err := w.attempt(t.Context()).create()
				if fault.ExitCode(err) != fault.ExitPreflight {
					t.Fatalf("exit code %d: %v", fault.ExitCode(err), err)
				}
				for _, want := range test.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("it does not say %q:\n%v", want, err)
					}
				}
				for name, h := range w.hosts {
					if log := h.Log(); len(log) > 0 {
						t.Errorf("%s was touched: %s", name, log)
					}
				}
			})
		})
	}
}

// TestOwnBalancerPort changes the port of a cluster behind a load balancer of the user's: nothing else is touched until that listens there.
func TestOwnBalancerPort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		was := edited(t, row(t, "row7"), "loadBalancer: {mode: external, external: {type: external}, vip: "+vip+"}")
		w := newWorld(t, was, "")
		listen := func(port string) {
			for _, h := range w.hosts {
				h.Serve(vip+":"+port, func() (net.Conn, error) { return h.Dial(t.Context(), "tcp", addresses["node1"]+":"+port) })
			}
		}
		listen("6443")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		first := w.image()

		w.configure(edited(t, was, edits["port of the endpoint"].set))
		chronicle := w.watched()
		a := w.attempt(t.Context())
		_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		if advice := fault.Advice(err); !strings.Contains(advice, "let your load balancer listen at port 8443") || len(chronicle.restarts()) > 0 {
			t.Errorf("restarts %v, advice %q: %v", chronicle.restarts(), advice, err)
		}
		listen("8443")
		w.apply()
		w.settled()
		w.configure(was)
		w.apply()
		w.settled()
		first.same(t, "as it was", w.image())
	})
}

// TestFaultsVirtualAddress exchanges the address that load balancers share for another one, and takes that back, on all rows that have one.
func TestFaultsVirtualAddress(t *testing.T) {
	exchanged(t, slices.DeleteFunc(all(), func(name string) bool { return !strings.Contains(row(t, name), "vip: "+vip) }))
}

// TestVirtualAddress does so with kube-vip.
func TestVirtualAddress(t *testing.T) {
	exchanged(t, []string{"row15", "row15-ipv6"})
}

func exchanged(t *testing.T, names []string) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				was := row(t, name)
				w := newWorld(t, was, "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				is := edited(t, was, `loadBalancer: {vip: "`+w.like(secondVIP)+`"}`)
				w.configure(is)
				chronicle := w.watched()
				a := w.attempt(t.Context())
				a.Event = func(ev engine.Event) { // a worker finds an API server all the while
					if ev.Status != engine.Changed {
						return
					}
					conn, err := w.named(w.hosts["node4"], endpoints[0], apiPorts[0])
					if err != nil {
						t.Errorf("after %s on %s: %v", ev.What, ev.Host, err)
						return
					}
					_ = conn.Close()
				}
				_, err = a.App.Apply(a.ctx, a.Request, a.Observer, nil)
				w.must(err)
				chronicle.apart(t)
				w.settled()
				born(t, name, is, w.certs(name)).same(t, "as if made so", w.image())
				w.configure(was)
				w.apply()
				w.settled()
				born(t, name, was, w.certs(name)).same(t, "with the former address", w.image())
			})
		})
	}
}

// TestReloaded has other masters behind proxies that systemd runs: they read their configuration again, and nobody is asked.
func TestReloaded(t *testing.T) {
	for name, proxy := range map[string]string{"row9": "haproxy", "row12": "nginx", "row18": "haproxy", "row21": "nginx"} {
		config := row(t, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w, _ := between(t, moves(name, config)["five masters"])
				w.configure(moves(name, config)["five masters"][1])
				p := w.proposal()
				if i := slices.IndexFunc(p.Restarts, func(r app.Restart) bool { return r.Service == proxy }); i >= 0 {
					t.Errorf("announced: %+v", p.Restarts[i])
				}
				for _, h := range w.hosts {
					h.ClearLog()
				}
				w.apply()
				reloads := 0
				for n, h := range w.hosts {
					for _, l := range h.Log() {
						switch l {
						case "reload " + proxy + ".service":
							reloads++
						case "stop " + proxy + ".service":
							t.Errorf("%s: %s", n, l)
						}
					}
				}
				if told := strings.Count(steps(p), proxy+": reload\n"); reloads == 0 || told != reloads {
					t.Errorf("%d reloads, %d told:\n%s", reloads, told, steps(p))
				}
				w.settled()
			})
		})
	}
}
