# shellcheck shell=sh
# Prints all that is known of a host, in sections. Input: S, kubexm's directory on the host; UNITS that may run; BASE, the
# paths whose disk space matters on all hosts; and as arguments the directories that are asked about.
export LC_ALL=C
s() { printf '\n@%s\n' "$1"; }
s hostname; cat /proc/sys/kernel/hostname
s os; cat /etc/os-release
s arch; uname -m
s kernel; uname -r
s cgroup; if [ -f /sys/fs/cgroup/cgroup.controllers ]; then echo 2; else echo 1; fi
s cpus; nproc
s mem; grep MemTotal /proc/meminfo
s swaps; cat /proc/swaps
s machineid; cat /etc/machine-id 2>/dev/null
s pm; for p in apt-get dnf yum; do if command -v $p >/dev/null; then echo $p; break; fi; done
s init; cat /proc/1/comm
s caps; grep CapBnd /proc/1/status
s product; cat /sys/class/dmi/id/product_uuid 2>/dev/null
s container; systemd-detect-virt -c 2>/dev/null
s disks
for p in "$@" $BASE; do
	d=$p; until [ -e "${d:-/}" ]; do d=${d%/*}; done
	echo "$p $(df -Pm "${d:-/}" 2>/dev/null | tail -n 1) $(df -Pi "${d:-/}" 2>/dev/null | tail -n 1)"
done
s addresses; ip -o addr show 2>/dev/null
s macs; for i in /sys/class/net/*; do if read -r mac <"$i/address"; then echo "${i##*/} $mac"; fi; done 2>/dev/null
s learns; for i in /proc/sys/net/ipv6/conf/*; do if read -r a <"$i/accept_ra"; then echo "${i##*/} $a"; fi; done 2>/dev/null
s routes; ip -4 route show 2>/dev/null; ip -6 route show 2>/dev/null
s nameservers; grep -s '^nameserver' /etc/resolv.conf
s resolves; timeout 1 getent ahosts "$(cat /proc/sys/kernel/hostname)" 2>/dev/null
s proxy
if [ -n "${HTTP_PROXY:-}${http_proxy:-}${HTTPS_PROXY:-}${https_proxy:-}" ]; then echo set=yes; fi
echo "no=${NO_PROXY:-${no_proxy:-}}"
s active
# shellcheck disable=SC2086 # a list
systemctl is-active $UNITS 2>/dev/null
s pods; for f in /etc/kubernetes/manifests/*.yaml "$S/kubeadm"; do if [ -f "$f" ]; then echo "$f"; fi; done
s compose; /usr/bin/docker compose version --short 2>/dev/null
s ufw; grep -si '^ENABLED=yes' /etc/ufw/ufw.conf
s selinux; cat /sys/fs/selinux/enforce 2>/dev/null
s listening; ss -ltnp 2>/dev/null
s features
for m in overlay br_netfilter nf_tables ip_vs vxlan ip_set; do if modprobe -nq $m 2>/dev/null; then echo $m; fi; done
grep -oE ' (ovl_fill_super|br_nf_pre_routing|nft_do_chain|ip_vs_in_hook|ip_vs_in|vxlan_xmit|ip_set_test)([[:space:]]|$)' /proc/kallsyms
f=/proc/sys/net/netfilter/nf_conntrack_max; if [ -e $f ] && ! [ -w $f ]; then echo conntrack-fixed; fi
if [ -e /run/systemd/resolve/resolv.conf ]; then echo resolved; fi
s clock; date +%s
s kubelet; cat /var/lib/kubelet/config.yaml 2>/dev/null
s drained; if [ -e "$S/drained" ]; then echo yes; fi
s leftovers
for f in /etc/kubernetes/*.conf /etc/kubernetes/manifests/* /etc/kubernetes/pki/*.key /var/lib/etcd/member /var/lib/kubelet/config.yaml /etc/systemd/system/kubelet.service; do
	if [ -e "$f" ]; then echo "$f"; fi
done
s filled
# shellcheck disable=SC2010 # one name to leave out
for d in "$@"; do if ls -A "$d" 2>/dev/null | grep -qvx 'lost+found'; then echo "$d"; fi; done
s names; cat /etc/hosts
s servers; cat /etc/kubernetes/*.conf 2>/dev/null | grep '^ *server: https://'
s env; cat "$S/env" 2>/dev/null
if grep -qsx ' *"version": 1,' "$S/inventory"; then s inventory; cat "$S/inventory"; else s ledger; ledger; fi
s end
