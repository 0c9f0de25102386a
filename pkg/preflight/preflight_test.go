package preflight_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/preflight"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// unfit are hosts with which something is wrong, one for each check at least.
var unfit = map[string]func(*runner.Facts){
	"other distribution":       func(f *runner.Facts) { f.OS, f.OSName = "slackware", "Slackware 15.0" },
	"other version":            func(f *runner.Facts) { f.OSVersion, f.OSName = "10", "Debian GNU/Linux 10 (buster)" },
	"longer version":           func(f *runner.Facts) { f.OS, f.OSVersion = "rocky", "9.6" },
	"no systemd":               func(f *runner.Facts) { f.Systemd = false },
	"architecture":             func(f *runner.Facts) { f.Arch = "riscv64" },
	"one CPU":                  func(f *runner.Facts) { f.CPUs = 1 },
	"memory for a worker only": func(f *runner.Facts) { f.MemoryMiB = 1900 },
	"little memory":            func(f *runner.Facts) { f.MemoryMiB = 900 },
	"full disk":                func(f *runner.Facts) { disks(f, 6000, 100_000) },
	"full disk of a member":    func(f *runner.Facts) { f.Env = map[string]string{"cluster": "demo"}; disks(f, 300, 100_000) },
	"few inodes":               func(f *runner.Facts) { disks(f, 9000, 4000) },
	"inodes made as needed":    func(f *runner.Facts) { disks(f, 9000, 0) },
	"disks apart": func(f *runner.Facts) {
		disks(f, 3000, 100_000)
		f.Disks[0].Mount, f.Disks[0].FreeMiB = "/var/lib/etcd", 999
		f.Disks[1].Mount, f.Disks[1].FreeMiB, f.Disks[1].FreeIno = "/var", 4999, 5
	},
	"no kernel modules":  func(f *runner.Facts) { f.Features = map[string]bool{}; f.Kernel = "5.0-tiny" },
	"no package manager": func(f *runner.Facts) { f.PackageManager = "" },
	"engine of others":   func(f *runner.Facts) { f.Running = []string{"containerd"} },
	"leftovers":          func(f *runner.Facts) { f.Leftovers = []string{"/etc/kubernetes/admin.conf", "/var/lib/etcd/member"} },
	"of another cluster": func(f *runner.Facts) { f.Env = map[string]string{"cluster": "other"} },
	"of this cluster": func(f *runner.Facts) {
		f.Env = map[string]string{"cluster": "demo"}
		f.Leftovers = []string{"/etc/kubernetes/admin.conf"}
		f.Listening[6443] = "kube-apiserver"
	},
	"of another cluster of that name": func(f *runner.Facts) { f.Env = map[string]string{"cluster": "demo", "id": "sha256:0"} },
	"data of others":                  func(f *runner.Facts) { f.Filled = []string{"/var/lib/containerd"} },
	"clock a bit ahead":               func(f *runner.Facts) { f.Skew = 6 * time.Second },
	"clock hours behind":              func(f *runner.Facts) { f.Skew = -8 * time.Hour },
	"no forwarding":                   func(f *runner.Facts) { f.Deaf = "listening on its loopback: denied" },
	"ports of a worker":               func(f *runner.Facts) { f.Listening[10250], f.Listening[10256] = "kubelet", "kube-proxy" },
	"ports of a master": func(f *runner.Facts) {
		for p, by := range map[int]string{6443: "nginx", 10257: "java", 10259: "", 2379: "etcd", 2380: "etcd"} {
			f.Listening[p] = by
		}
	},
	"another port, taken":     another("nginx"),
	"another port, forwarded": another("systemd-socket-"),
	"ports of a cache to come": func(f *runner.Facts) {
		f.Env = map[string]string{"cluster": "demo"}
		f.Listening[9253], f.Listening[9254] = "php-fpm_exporter", "coredns"
	},
	"ports of a cache that runs": func(f *runner.Facts) {
		f.Env, f.PodNameServers = map[string]string{"cluster": "demo"}, []string{"169.254.25.10", "10.233.0.10"}
		f.Listening[9253] = "somebody"
	},
	"swap": func(f *runner.Facts) { f.Swaps = []string{"/dev/sda2", "/swap.img"} },

	"kernel of CentOS 7":        func(f *runner.Facts) { f.Kernel, f.CgroupVersion = "3.10.0-1160.el7.x86_64", 1 },
	"kernel of CentOS 6":        func(f *runner.Facts) { f.Kernel = "2.6.32-754.el6.x86_64" },
	"old kernel, cgroup v2":     func(f *runner.Facts) { f.Kernel = "5.4.0-216-generic" },
	"host name with capitals":   func(f *runner.Facts) { f.Hostname = "Node_" + f.MachineID[31:] },
	"host name leads to itself": func(f *runner.Facts) { f.Hostname, f.Resolves = "vm-"+f.MachineID[31:], []string{"127.0.1.1"} },
	"host name leads nowhere":   func(f *runner.Facts) { f.Hostname = "vm-" + f.MachineID[31:] },
	"host name that is known":   func(f *runner.Facts) { f.Hostname, f.Resolves = "vm-"+f.MachineID[31:], []string{"192.0.2.7"} },
	"one host name":             func(f *runner.Facts) { f.Hostname, f.Resolves = "template", []string{"192.0.2.7"} },
	"one machine-id":            func(f *runner.Facts) { f.MachineID = "0123456789abcdef0123456789abcdef" },
	"one machine-id, of members": func(f *runner.Facts) {
		f.MachineID, f.Env = "0123456789abcdef0123456789abcdef", map[string]string{"cluster": "demo"}
	},
	"no machine-id":    func(f *runner.Facts) { f.MachineID = "uninitialized" },
	"one product_uuid": func(f *runner.Facts) { f.ProductUUID = "564d8c5a-8d0e-4f37-9ad1-51a4a3a2a1a0" },
	"no product_uuid":  func(f *runner.Facts) { f.ProductUUID = "00000000-0000-0000-0000-000000000000" },
	"one MAC address":  func(f *runner.Facts) { f.Interfaces[0].MAC = "52:54:00:00:00:10" },
	"no MAC address":   func(f *runner.Facts) { f.Interfaces[0].MAC = "00:00:00:00:00:00" },
	"containers of one machine": func(f *runner.Facts) {
		f.Container, f.ProductUUID, f.Interfaces[0].MAC, f.TimeServices = "systemd-nspawn", "564d8c5a-8d0e-4f37-9ad1-51a4a3a2a1a0", "52:54:00:00:00:10", nil
	},
	"no time service":        func(f *runner.Facts) { f.TimeServices = nil },
	"SELinux":                func(f *runner.Facts) { f.Enforcing = true },
	"firewalls":              func(f *runner.Facts) { f.Firewalls = []string{"firewalld", "ufw"} },
	"no such address":        func(f *runner.Facts) { f.Interfaces[0].Addresses = []string{"10.0.0.77/24"} },
	"no name server":         func(f *runner.Facts) { f.NameServers = nil },
	"name server of its own": func(f *runner.Facts) { f.NameServers = []string{"127.0.0.1", "::1"} },
	"systemd-resolved": func(f *runner.Facts) {
		f.NameServers = []string{"127.0.0.53"}
		f.Features[runner.FeatureResolved] = true
	},
	"routes": func(f *runner.Facts) {
		f.Routes = routes("default eth0", "0.0.0.0/1 tun0", "10.0.0.0/8 bond0", "10.233.64.0/24 cni0", "10.233.3.1 eth1", "10.234.0.0/16 eth1")
	},
	"wide route": func(f *runner.Facts) { f.Routes = routes("10.0.0.0/8 bond0") },
	"routes of a member": func(f *runner.Facts) {
		f.Env, f.Routes = map[string]string{"cluster": "demo"}, routes("10.233.64.0/24 cni0")
	},
	"proxy":            func(f *runner.Facts) { f.Proxied, f.NoProxy = true, "localhost, 10.0.0.11 ,10.233.0.0/17,.example.com" },
	"proxy for others": func(f *runner.Facts) { f.Proxied, f.NoProxy = true, "10.0.0.0/8" },
	"proxy for nobody": func(f *runner.Facts) { f.Proxied, f.NoProxy = true, "*" },
	"silent name servers": func(f *runner.Facts) {
		f.NameServers = []string{"192.0.2.53", "2001:db8::53"}
		f.Tried = map[string]string{"192.0.2.53:53": "no answer in 2 seconds", "[2001:db8::53]:53": "network is unreachable"}
	},
	"a silent name server": func(f *runner.Facts) {
		f.NameServers, f.Tried = []string{"192.0.2.53", "192.0.2.54"}, map[string]string{"192.0.2.53:53": "no answer in 2 seconds", "192.0.2.54:53": ""}
	},
	"out of reach": func(f *runner.Facts) {
		f.Tried = map[string]string{"10.0.0.11:6443": "no answer in 2 seconds", "10.0.0.12:10250": "no route to host", "192.0.2.1:1": "not asked"}
	},
	"out of reach behind firewalls": func(f *runner.Facts) {
		f.Tried, f.Firewalls = map[string]string{"10.0.0.11:6443": "no route to host", "10.0.0.12:10250": "no route to host"}, []string{"firewalld"}
	},
}

// another lets the API server of a cluster that runs listen at another port than it is to, and a process at that one.
func another(process string) func(*runner.Facts) {
	return func(f *runner.Facts) {
		f.Env, f.Servers = map[string]string{"cluster": "demo"}, []string{"lb.kubexm.local:7443"}
		f.Listening[7443], f.Listening[6443] = "kube-apiserver", process
	}
}

// disks puts all on one file system.
func disks(f *runner.Facts, mib, inodes int) {
	f.Disks = nil
	for _, path := range []string{"/var/lib/etcd", "/var/lib/containerd", "/var/lib/kubelet", "/usr/local/bin"} {
		f.Disks = append(f.Disks, runner.Disk{Path: path, Mount: "/", FreeMiB: mib, FreeIno: inodes, Inodes: inodes})
	}
}

func routes(texts ...string) (all []runner.Route) {
	for _, t := range texts {
		to, dev, _ := strings.Cut(t, " ")
		all = append(all, runner.Route{To: to, Dev: dev})
	}
	return all
}

// well are hosts with which all is well but what spoil does.
func well(spoil func(*runner.Facts)) func(string, *runner.Facts) {
	return func(_ string, f *runner.Facts) {
		f.Swaps, f.TimeServices = nil, []string{"chronyd"}
		spoil(f)
	}
}

// TestPreflight shows what each check finds, on a master and on a worker, and
// that each can be skipped.
func TestPreflight(t *testing.T) {
	found := map[string]bool{"vip": true, preflight.Etcd: true, preflight.Store: true, "load-balancer": true, "docker": true} // TestVIP, TestBalancers, package app, TestHarborPreflight; below TestUpgradeChecks
	for _, name := range upgradeChecks {
		found[name] = true
	}
	for name, spoil := range unfit {
		t.Run(name, func(t *testing.T) {
			c := clustertest.New(t, "  kubernetes: {proxyMode: nftables}\n", well(spoil))
			id := c.ID()
			c.CA(pki.Kubernetes)
			if err := c.Certs.Flush(); err != nil {
				t.Fatal(err)
			}
			for _, f := range c.Facts {
				if f.Env["cluster"] == "demo" && f.Env["id"] == "" {
					f.Env["id"] = id
				}
			}
			var b strings.Builder
			for _, f := range preflight.Facts(c, nil) {
				text, err := yaml.Marshal(f)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "---\n%s", strings.ReplaceAll(string(text), c.Certs.Dir, "CERTS"))
				found[f.Check] = true
				if f.Check == "owner" {
					continue // whose a machine is cannot be skipped
				}
				for _, left := range preflight.Facts(c, []string{f.Check}) {
					if left.Check == f.Check {
						t.Errorf("%s is not skipped", f.Check)
					}
				}
			}
			golden.Equal(t, b.String())
		})
	}
	for _, name := range preflight.Names() {
		if !found[name] {
			t.Errorf("no host is unfit for %s", name)
		}
	}
}

// TestUpgradeSpace warns of little space on hosts of the cluster, and does not begin an upgrade with it.
func TestUpgradeSpace(t *testing.T) {
	c := clustertest.New(t, "", well(func(f *runner.Facts) { f.Env = map[string]string{"cluster": "demo"}; disks(f, 2000, 100000) }))
	for version, want := range map[string]preflight.Severity{c.Spec.Kubernetes.Version: preflight.SeverityWarning, "v1.36.4": preflight.SeverityError} {
		c.Observed.API = []cluster.APIServer{{Host: "node1", Version: version}}
		var is []preflight.Severity
		for _, f := range preflight.Facts(c, nil) {
			if f.Check == "disk" {
				is = append(is, f.Severity)
			}
		}
		if len(is) == 0 || is[0] != want {
			t.Errorf("with API servers %s: %v", version, is)
		}
	}
}

// TestPreflightConfigured has limits and ways of its own.
func TestPreflightConfigured(t *testing.T) {
	same := func(*runner.Facts) {}
	deaf := func(f *runner.Facts) {
		f.NameServers, f.Tried = []string{"192.0.2.7"}, map[string]string{"192.0.2.7:53": "no answer"}
	}
	for name, c := range map[string]struct {
		spec  string
		spoil func(*runner.Facts)
		want  string // host, check and found of all findings
	}{
		"nothing":              {"", same, ""},
		"higher limits":        {"  preflight: {minCPUs: 8, minMasterMemoryMiB: 16000, minWorkerMemoryMiB: 7941, minNodeDiskMiB: 100000}\n", same, "node1 cpu 4 CPUs; node1 memory 7941 MiB of memory; node1 disk 38912 MiB free in /; node2 cpu 4 CPUs; node2 disk 38912 MiB free in /"},
		"lower limits":         {"  preflight: {minCPUs: 1, minMasterMemoryMiB: 500, minWorkerMemoryMiB: 500, minNodeDiskMiB: 100, minEtcdDiskMiB: 100, minNodeInodes: 10}\n", func(f *runner.Facts) { f.CPUs, f.MemoryMiB = 1, 600; disks(f, 1700, 20) }, ""},
		"cgroup v1":            {"", func(f *runner.Facts) { f.CgroupVersion = 1 }, "node1 cgroup cgroup v1 (warning); node2 cgroup cgroup v1 (warning)"},
		"cgroup v1, early":     {"  kubernetes: {version: v1.34.11}\n", func(f *runner.Facts) { f.CgroupVersion = 1 }, ""},
		"cgroup v1 refused":    {"  kubernetes: {kubelet: {config: {failCgroupV1: true}}}\n", func(f *runner.Facts) { f.CgroupVersion = 1 }, "node1 cgroup cgroup v1; node2 cgroup cgroup v1"},
		"upstream servers":     {"  dns: {coredns: {upstream: [192.0.2.53]}}\n", func(f *runner.Facts) { f.NameServers = nil }, ""},
		"upstream online":      {"  dns: {coredns: {upstream: [192.0.2.53]}}\n", deaf, "node1 name-servers no name server can be reached: 192.0.2.7 (no answer) (warning); node2 name-servers no name server can be reached: 192.0.2.7 (no answer) (warning)"},
		"upstream offline":     {"  dns: {coredns: {upstream: [192.0.2.53]}}\n  source: {offline: true}\n", deaf, ""},
		"containerd of others": {"  runtime: {type: docker}\n", func(f *runner.Facts) { f.Running = []string{"containerd"} }, "node1 leftovers containerd.service active; node2 leftovers containerd.service active"},
		"docker of others": {"  runtime: {type: docker}\n", func(f *runner.Facts) {
			f.Running, f.Inventory = []string{"crio", "docker", "kubelet"}, []string{"unit crio"}
		}, "node1 leftovers docker.service active; node2 leftovers docker.service active"},
		"former runtime": {"  runtime: {type: docker}\n", func(f *runner.Facts) {
			f.Running, f.Inventory = []string{"crio", "kubelet"}, []string{"unit crio"}
		}, ""},
		"filled directory": {"  runtime: {type: docker}\n", func(f *runner.Facts) {
			f.Running, f.Inventory, f.Filled = []string{"crio", "kubelet"}, []string{"unit crio"}, []string{"/var/lib/docker"}
		}, "node1 leftovers /var/lib/docker not empty; node2 leftovers /var/lib/docker not empty"},
		"resolv.conf": {"  kubernetes: {kubelet: {config: {resolvConf: /etc/other}}}\n", func(f *runner.Facts) { f.NameServers = nil }, ""},
		"extra hosts": {"  extra: {hosts: [{domain: vm, address: 192.0.2.9}]}\n", func(f *runner.Facts) { f.Hostname = "vm" }, "node1 unique-hostname host name vm on node1, node2 (warning); node2 unique-hostname host name vm on node1, node2 (warning)"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range preflight.Facts(clustertest.New(t, c.spec, well(c.spoil)), nil) {
				text := f.Host + " " + f.Check + " " + f.Found
				if f.Severity == preflight.SeverityWarning {
					text += " (warning)"
				}
				got = append(got, text)
			}
			if text := strings.Join(got, "; "); text != c.want {
				t.Errorf("got %s", text)
			}
		})
	}
}

// TestLinks shows who tries whom in a large cluster.
func TestLinks(t *testing.T) {
	conf, facts := &v1alpha1.Cluster{}, map[string]*runner.Facts{}
	conf.Metadata.Name = "large"
	conf.Spec.LoadBalancer = v1alpha1.LoadBalancer{Enabled: new(false), Port: 7443}
	add := func(n int, name string, roles ...v1alpha1.Role) {
		for i := range n {
			h := v1alpha1.Host{Name: fmt.Sprintf("%s%d", name, i), Roles: roles, InternalAddress: fmt.Sprintf("10.0.%d.%d", len(name), i)}
			conf.Spec.Hosts = append(conf.Spec.Hosts, h)
			facts[h.Name] = &runner.Facts{}
		}
	}
	add(3, "m", v1alpha1.RoleMaster)
	add(3, "etcd", v1alpha1.RoleEtcd)
	add(147, "worker", v1alpha1.RoleWorker)
	add(2, "lb", v1alpha1.RoleLoadBalancer)
	delete(facts, "worker0") // cannot be reached itself
	c := cluster.New(conf, t.TempDir(), nil, facts)
	tried := map[string]bool{} // kubelets
	for host, want := range map[string]string{
		"m0":      "etcd0:2379 etcd1:2379 etcd2:2379 m1:7443 m2:7443 and 48 kubelets",
		"m1":      "etcd0:2379 etcd1:2379 etcd2:2379 m0:7443 m2:7443 and 50 kubelets",
		"m2":      "etcd0:2379 etcd1:2379 etcd2:2379 m0:7443 m1:7443 and 50 kubelets",
		"etcd1":   "etcd0:2379 etcd0:2380 etcd2:2379 etcd2:2380 and 0 kubelets",
		"worker9": "lb0:7443 lb1:7443 m0:7443 m1:7443 m2:7443 and 0 kubelets",
		"lb0":     "m0:7443 m1:7443 m2:7443 and 0 kubelets",
	} {
		var got []string
		kubelets := 0
		for _, l := range preflight.Links(c, host) {
			if l.Port == 10250 {
				kubelets++
				tried[l.Host] = true
				continue
			}
			got = append(got, fmt.Sprintf("%s:%d", l.Host, l.Port))
		}
		slices.Sort(got)
		if text := fmt.Sprintf("%s and %d kubelets", strings.Join(got, " "), kubelets); text != want {
			t.Errorf("%s tries %s, want %s", host, text, want)
		}
	}
	if len(tried) != 2+146 { // m0 is nobody's share
		t.Errorf("%d kubelets are tried", len(tried))
	}
	for _, f := range facts {
		f.Env = map[string]string{"cluster": c.Name}
	}
	if l := preflight.Links(c, "m0"); len(l) > 0 {
		t.Errorf("members of a cluster try %v", l)
	}
}

// TestExternalEtcd has one on a machine of the cluster, where it is no leftover, and a proxy that masters
// must not reach it through.
func TestExternalEtcd(t *testing.T) {
	leave := well(func(f *runner.Facts) {
		f.Leftovers, f.Proxied, f.NoProxy = []string{"/var/lib/etcd/member"}, true, "10.233.0.0/16,10.0.0.8/29"
	})
	external := clustertest.Alone + clustertest.ExternalEtcd(t, &pki.Store{Dir: t.TempDir()})
	for want, c := range map[string]*cluster.Cluster{
		"[proxy a proxy is set, and no_proxy lacks 10.0.0.31]":            clustertest.Parse(t, external, leave),
		"[leftovers /var/lib/etcd/member leftovers /var/lib/etcd/member]": clustertest.New(t, "", leave),
	} {
		found := []string{}
		for _, f := range preflight.Facts(c, nil) {
			found = append(found, f.Check+" "+f.Found)
		}
		if fmt.Sprint(found) != want {
			t.Errorf("found %q, want %s", found, want)
		}
	}
}
