# Describes a node in text that is the same as long as nothing has changed
# that somebody put there: runs on the node, as root.
export LC_ALL=C
section() { printf '\n== %s\n' "$1"; }

# Left out: what packages bring (listed below), logs, caches, and what the system itself keeps writing.
look() {
	find /etc /usr/local /opt /srv /root /home /var/lib /var/backups \
		\( -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/lib/systemd -o -path /var/lib/private \
		-o -path /var/lib/ucf -o -path /var/lib/chrony -o -path /var/lib/logrotate -o -path /etc/ld.so.cache -o -path /etc/.pwd.lock \
		-o -path '/var/backups/*.[0-9]*' -o -path '/etc/*-' -o -name .bash_history -o -name .lesshst \) -prune -o "$@"
}
section files
look \( -type l -printf '%p l %U:%G -> %l\n' -o -type f -printf '%p f %m %U:%G %s\n' -o -printf '%p %y %m %U:%G\n' \) | sort

section sums
look -type f -print0 | sort -z | xargs -0 sha256sum

section packages
dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\n' | sort

section 'enabled units'
systemctl list-unit-files --state=enabled,enabled-runtime,masked --no-legend | awk '{print $1, $2}' | sort

section 'running units'
systemctl list-units --type=service,socket,timer,path --state=active,failed --no-legend --plain | awk '{print $1, $3}' |
	grep -vE '^(user|user-runtime-dir|modprobe|getty|systemd-tmpfiles|systemd-journal|apt-daily|dpkg-db|e2scrub|fstrim|logrotate|ldconfig|systemd-sysusers|systemd-update-done)' | sort

section processes
ps -eo comm= | grep -vE '^(sshd.*|sh|bash|ps|sort|uniq|grep|systemd|\(sd-pam\)|kworker.*|agetty)$' | sort -u

section mounts
findmnt -rn -o TARGET,FSTYPE | grep -vE '^(/run/(user|credentials|host)|/proc/|/dev/)' | sort

section interfaces
ip -o link | awk -F': ' '{print $2}' | cut -d@ -f1 | sort
ip -o addr show scope global | awk '{print $2, $3, $4}' | sort
ls /run/netns 2> /dev/null

section routes
ip route show table all | grep -vE '^(broadcast|local|multicast|fe80|ff00)' | sort
{ ip rule; ip -6 rule; } | sort
tc qdisc show 2> /dev/null | grep clsact

section 'packet filter'
iptables-save 2> /dev/null | sed -E 's/ *\[[0-9:]+\]//; /^#/d'
ip6tables-save 2> /dev/null | sed -E 's/ *\[[0-9:]+\]//; /^#/d'
nft -s list tables 2> /dev/null | sort
ipset list -name 2> /dev/null | sort

section sysctl
sysctl -a -r '^(net\.ipv4\.(ip_forward$|ip_local|tcp_|neigh\.default\.gc|conf\.(all|default)\.(rp_filter|forwarding|arp))|net\.ipv6\.conf\.all\.(forwarding|disable)|net\.bridge|net\.core\.(somaxconn|rmem|wmem|netdev_max)|net\.netfilter\.nf_conntrack_max)' 2> /dev/null |
	grep -vE 'tcp_(fastopen_key|mem|available|allowed)' | sort
sysctl -a -r '^(vm\.(swappiness|overcommit_memory|panic_on_oom|max_map_count)|kernel\.(panic|panic_on_oops|pid_max|keys\.root.*)|fs\.(inotify\..*|file-max|nr_open|may_detach.*))$' 2> /dev/null | sort

section 'kernel modules, swap, control groups, runtime files'
cut -d' ' -f1 /proc/modules | sort
cat /proc/swaps
find /sys/fs/cgroup -maxdepth 2 -name 'kube*' | sort
ls /run | grep -vE '^(motd.dynamic|utmp|user|credentials|agetty.*|blkid|sshd.pid)$' | sort
