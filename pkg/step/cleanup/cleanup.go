// Package cleanup holds the steps that take a cluster off a machine again.
package cleanup

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// readable tells whether the host's nft can read the tables there are. An old one
// crashes over those that a newer one has made in a container, and can then not
// even remove them.
const readable = `{ ! command -v nft >/dev/null || nft list tables >/dev/null 2>&1; }`

// Pods stops the kubelet, so that nothing starts pods again, and removes all
// pods with what the network plugin made for them. What kube-proxy made in its
// container it also removes from there, where the host cannot. Pods that the container runtime does not end are left to Services, which ends all of it.
func Pods(c *cluster.Cluster) step.Step {
	runtime, stop := plugin.RuntimeOf(c.Spec), ""
	if at := plugin.NetworkOf(c.Spec).Conf; at != "" { // the API server may be gone, and pods would not end: their interfaces go with them
		stop = `if [ -e ` + at + ` ]; then echo '{"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "loopback"}]}' >` + at + `
i=0; until crictl info 2>/dev/null | grep -qi '"name": "none"' || [ $i = 25 ]; do i=$((i + 1)); sleep 0.2; done; fi
`
	}
	for _, vip := range plugin.VIPs() {
		if vip.Pod { // which gives the address up as it ends
			stop += `for i in $(crictl ps -q --name '^` + vip.Unit + `$'); do crictl stop --timeout 10 "$i" >/dev/null || true; done` + "\n"
		}
	}
	units := strings.Join(runtime.Units(), " ")
	return step.With(step.Command{
		What:   "no pods",
		Unless: stopped(runtime, " || ") + ` || { ! systemctl is-active -q kubelet && [ -z "$(crictl pods -q)" ] && ` + readable + `; }`,
		Run: `systemctl stop kubelet || true
` + stop + `crictl stop --timeout 0 $(crictl ps -q) >/dev/null 2>&1 || true # some runtimes wait for each
crictl rmp -fa >/dev/null 2>&1 || true
left=$(crictl pods -q || true)
if [ -n "$left" ] && ! crictl rmp -f $left >&2; then # a runtime that has lost a container ends it only after a restart, if at all
systemctl restart ` + units + `; crictl rmp -fa >&2 || systemctl stop ` + units + `; fi
` + runtime.Run + `
if ! ` + readable + `; then for i in $(` + runtime.Images + ` | grep '/kube-proxy:'); do
run_image "$i" kubexm-cleanup /usr/local/bin/kube-proxy --cleanup >&2 || true; done; fi`,
	}, step.Options{Timeout: 10 * time.Minute})
}

// stopped asks whether one, or all, of the units of a container runtime do not run.
func stopped(r plugin.Runtime, how string) string {
	var all []string
	for _, u := range r.Units() {
		all = append(all, "! systemctl is-active -q "+u)
	}
	return strings.Join(all, how)
}

// shims lists the processes that the container runtime has left behind: those of containers outlive it
// (KillMode=process), and systemd forgets the control group of a unit that has stopped.
const shims = `shims() { for g in /sys/fs/cgroup/system.slice/RUNTIME.service /sys/fs/cgroup/systemd/system.slice/RUNTIME.service; do
if [ -f "$g/cgroup.procs" ]; then cat "$g/cgroup.procs"; fi; done; }
`

// Services stops the units that kubexm may have made, and what they left running. Where Docker runs the registry, the runtime is Docker's.
func Services(c *cluster.Cluster, host string) step.Step {
	runtime, registry := plugin.RuntimeOf(c.Spec), plugin.RegistryOf(c.Spec).Unit
	units := "kubelet kube-proxy kube-scheduler kube-controller-manager kube-apiserver " + strings.Join(runtime.Units(), " ")
	shims := strings.ReplaceAll(shims, "RUNTIME", runtime.Unit)
	if cluster.InDocker(c.Spec, c.Host(host)) {
		units, shims = registry, "shims() { :; }\n"
	} else if c.Host(host).Is(v1alpha1.RoleRegistry) {
		units += " " + registry
	}
	if !c.ExternalEtcd() { // which may run on this machine, too
		units += " etcd"
	}
	return step.With(step.Command{
		What:   "no services",
		Unless: shims + "for u in " + units + `; do if systemctl is-active -q $u; then exit 1; fi; done; [ -z "$(shims)" ]`,
		Run: shims + "systemctl stop " + units + ` 2>/dev/null || true
while p=$(shims); [ -n "$p" ]; do kill -KILL $p 2>/dev/null || true; done`,
	}, step.Options{Timeout: 3 * time.Minute}) // systemd waits for half of it at most
}

// Groups removes the control groups of pods, and ends what is left in them: the kernel keeps a group until
// the last process is gone, which is a moment after it was killed. systemd removes its own; the kubelet
// and runc make those of cgroup v1's other controllers themselves.
func Groups() step.Step { return groups("no control groups of pods") }

func groups(what string) step.Step {
	const groups = "/sys/fs/cgroup/kubepods.slice /sys/fs/cgroup/*/kubepods.slice"
	return step.Command{
		What:   what,
		Unless: "for g in " + groups + `; do if [ -d "$g" ]; then exit 1; fi; done`,
		Run: `systemctl stop kubepods.slice 2>/dev/null || true
clear() {
  for d in "$1"/*/; do if [ -d "$d" ]; then clear "${d%/}"; fi; done
  tries=50
  until rmdir "$1" 2>/dev/null || [ ! -d "$1" ]; do
    if [ $tries = 0 ]; then rmdir "$1"; return; fi
    kill -KILL $(grep -v '^0$' "$1/cgroup.procs" 2>/dev/null) 2>/dev/null || true # 0 is a process of another PID namespace
    sleep 0.2; tries=$((tries - 1))
  done
}
for g in ` + groups + `; do if [ -d "$g" ]; then clear "$g"; fi; done`,
	}
}

// mounts lists, last mounted first, what is mounted at patterns.
const mounts = `while read -r _ at _; do case "$at" in PATTERNS) m="$at
$m";; esac; done </proc/mounts; printf '%s' "$m"`

// Mounts unmounts what was left mounted.
func Mounts(c *cluster.Cluster) step.Step {
	unless, run := unmounted(append([]string{"/var/lib/kubelet/*", runner.Quote(c.DataRoot()) + "/*", "/run/netns/cni-*", "/var/run/netns/cni-*"}, plugin.Leftovers(c.Spec, false).Mounts...))
	return step.Command{What: "no mounts", Unless: unless, Run: run}
}

// unmounted are scripts: whether nothing is mounted at some patterns of paths, and what unmounts that.
func unmounted(patterns []string) (unless, run string) {
	list := strings.Replace(mounts, "PATTERNS", strings.Join(patterns, "|"), 1)
	return `[ -z "$(` + list + `)" ]`,
		list + ` | while read -r at; do umount -l "$at" && case "$at" in /run/*ns/*) rm -f "$at";; esac; done` // a namespace that is kept is a file that it is mounted at
}

// Network removes the interfaces, the programs of BPF, the routes to pods, the address of the DNS cache, and the packet filter rules and IP sets of the network
// plugin and of kube-proxy, and the virtual servers of a kube-proxy that made any. They are known by
// their names: what others say in comments does not count. Rules of others stay; tables of iptables that are
// empty then, as they come into being by looking at them, go.
func Network(c *cluster.Cluster) step.Step {
	left := plugin.Leftovers(c.Spec, false)
	left.Chains, left.Tables = append([]string{"KUBE-", "CNI-"}, left.Chains...), append([]string{"kube-proxy"}, left.Tables...)
	unfiltered, unfilter := filters(left)
	const eachLink = "ip -o link show | while read -r _ l _; do l=${l%:}; l=${l%@*}; "
	links := eachLink + "case $l in " + strings.Join(append([]string{"cni0", "kube-ipvs0"}, left.Links...), "|") + `) echo "$l" ;; esac; done`
	sets := "if command -v ipset >/dev/null; then ipset list -n | grep -E '^(" + strings.Join(append([]string{"KUBE-"}, left.Sets...), "|") + ")'; fi"
	pins := "if command -v tc >/dev/null; then for p in " + strings.Join(left.Pins, " ") + `; do if [ -e "$p" ]; then echo "$p"; fi; done; fi`
	// A program that stays on an interface without what is pinned drops packets. So it goes first, and where there is no tc to do that, both stay until the next boot.
	programs := "if command -v tc >/dev/null; then " + eachLink + `for d in ingress egress; do
tc filter show dev "$l" $d 2>/dev/null | sed -nE 's/.* pref ([0-9]+) bpf .*[ ](` + strings.Join(left.Filters, "|") + `).*/\1/p' | while read -r p; do echo "$l $d $p"; done; done; done; fi`
	moved := "ip $f rule show | grep -E '^(" + strings.Join(left.Rules, "|") + ")'"
	routes := func(do string) string {
		var each []string
		for _, cidr := range c.Spec.Network.PodCIDRs() {
			each = append(each, map[bool]string{true: "ip -6", false: "ip"}[strings.Contains(cidr, ":")]+" route "+do+" root "+cidr)
		}
		return strings.Join(each, "; ")
	}
	return step.Command{
		What: "no network of the cluster",
		Unless: "[ -z \"$(" + links + "; " + routes("show") + "; " + runner.CacheMark.List() + "; " + sets + "; " + programs + "; " + pins + "; for f in -4 -6; do " + moved + "; done)\" ] &&\n" +
			unfiltered,
		Run: programs + ` | while read -r l d p; do tc filter del dev "$l" $d pref "$p"
[ -n "$(tc filter show dev "$l" ingress; tc filter show dev "$l" egress)" ] || tc qdisc del dev "$l" clsact 2>/dev/null || true; done
for p in $(` + pins + `); do rm -rf "$p"; done
if ip link show kube-ipvs0 >/dev/null 2>&1 && command -v ipvsadm >/dev/null; then ipvsadm -C || true; fi
for l in $(` + links + `); do ip link delete "$l" 2>/dev/null || ! ip link show "$l" >/dev/null 2>&1; done
for f in -4 -6; do ` + moved + ` | while read -r n rule; do
ip $f rule show | grep -q '^0:' || ip $f rule add pref 0 from all lookup local
ip $f rule del pref "${n%:}" $rule; case $rule in *lookup\ local) ;; *) ip $f route flush table "${rule##* }" 2>/dev/null || true ;; esac
done; done
` + routes("flush") + `
` + runner.CacheMark.Flush() + `
` + unfilter + `
for f in ip ip6; do for t in raw mangle nat filter; do
if ! nft list table $f $t 2>/dev/null | grep -vqE '^(table .*|[[:space:]]*(chain .*|type .* policy accept;|}|))$'; then nft delete table $f $t 2>/dev/null || true; fi
done; done
for s in $(` + sets + `); do ipset destroy "$s"; done
rm -rf /run/netns/cni-*`,
	}
}

// filters are scripts: whether there are no chains, rules and tables of packet filters as of left, and what removes them. Rules of the kubelet go first:
// nft 1.0.6 crashes when it lists tables while there are any.
func filters(left plugin.Left) (unless, run string) {
	chains := "(" + strings.Join(left.Chains, "|") + ")"
	rules := "^:" + chains + "|^-[AI] " + chains + "| -[jg] " + chains
	for _, own := range left.Comments {
		rules += `|--comment "` + own + `"`
	}
	tables := "^table [a-z0-9]+ (" + strings.Join(left.Tables, "|") + ")$"
	return "! iptables-save 2>/dev/null | grep -qE '" + rules + "' && ! ip6tables-save 2>/dev/null | grep -qE '" + rules + `' &&
! nft list tables 2>/dev/null | grep -qE '` + tables + `'`,
		`for t in iptables ip6tables; do if $t-save 2>/dev/null | grep -qE '` + rules + `'; then $t-save | grep -vE '` + rules + `' | $t-restore; fi; done
nft list tables 2>/dev/null | grep -E '` + tables + `' | while read -r _ family name; do nft delete table "$family" "$name"; done`
}

// left lists what is in a directory, but for what is mounted there and what belongs to the
// file system itself.
const left = `left() { dev=$(stat -L -c %d "$1"); for e in "$1"/* "$1"/.[!.]* "$1"/..?*; do if [ -e "$e" ] || [ -L "$e" ]; then
case "$(stat -c %d "$e") $e" in */lost+found) ;; "$dev "*) echo "$e";; esac; fi; done; }
`

// Data removes what the services wrote, on no other file system than that of each directory. One
// that is a mount point or a link is emptied.
func Data(c *cluster.Cluster, host string) step.Step {
	of := plugin.Leftovers(c.Spec, cluster.InDocker(c.Spec, c.Host(host)))
	all := slices.Concat(cluster.DataDirs(c.Spec, c.Host(host)), []string{
		"/etc/kubernetes", "/var/lib/kubelet", "/var/lib/cni", "/var/lib/kube-proxy", "/var/log/pods", "/var/log/containers",
		"/run/lock/kubexm-kubeadm", // of earlier releases
	}, of.Paths)
	empty := append([]string{"/etc/cni/net.d", "/etc/cni", "/run/netns"}, of.Empty...)
	for _, s := range plugin.StoragesOf(c.Spec) { // the data of volumes stays
		empty = append(empty, s.Dir(c.Spec))
	}
	unless, run := emptied(all, empty)
	return step.Command{What: "no data of the cluster", Unless: unless, Run: run}
}

// oneSystem has rm stay on the file system of what it removes, where it can.
const oneSystem = `one=; if rm -f --one-file-system /nonexistent 2>/dev/null; then one=--one-file-system; fi
`

// emptied are scripts: whether files and directories have nothing in them that is of the directory's file system, and what removes that, and some more directories if nothing is left in them.
func emptied(all, empty []string) (unless, run string) {
	dirs := runner.Quote(all...)
	return left + "for d in " + dirs + `; do if [ -f "$d" ] || { [ -d "$d" ] && [ -n "$(left "$d")" ]; }; then exit 1; fi; done`,
		left + oneSystem + `bad=0
for d in ` + dirs + `; do if [ -d "$d" ]; then left "$d" | (rc=0; while IFS= read -r e; do rm -rf $one "$e" || rc=1; done; exit $rc) || bad=1
rmdir "$d" 2>/dev/null || true; else rm -f "$d"; fi; done
rmdir ` + runner.Quote(empty...) + ` 2>/dev/null || true; exit $bad`
}

// Restored puts back what was there before kubexm, and removes what it added.
type Restored struct{}

func (Restored) String() string { return "as before" }

// Precheck looks for kubexm's record on the host.
func (Restored) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	have, err := r.Sh(ctx, "ls -A "+runner.StateDir+" 2>/dev/null || true")
	if err != nil || have == "" {
		return nil, err
	}
	return &step.Change{Diff: "put back what was there before kubexm", Run: func(ctx context.Context) error {
		return r.Restore(ctx, func(text string) { step.Tell(ctx, text) })
	}}, nil
}
