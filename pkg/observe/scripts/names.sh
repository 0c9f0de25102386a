# shellcheck shell=sh
# Prints, in sections, where a host names other hosts; nothing of that is secret. Inputs: S, kubexm's directory on the host; NAME of
# the API server's endpoint; PROTOCOL of routes to former addresses; FILES of load balancers; and a
# function former, which shows the addresses themselves.
export LC_ALL=C
s() { printf '\n@%s\n' "$1"; }
s hostname; cat /proc/sys/kernel/hostname
s drained; if [ -e "$S/drained" ]; then echo yes; fi
s names; cat /etc/hosts
s pods; for f in /var/lib/kubelet/pods/*/etc-hosts; do grep -s " $NAME\$" "$f"; done
s kubeconfigs
for f in /etc/kubernetes/*.conf /var/lib/kube-proxy/*.conf; do
	grep -s '^ *server: ' "$f" | while read -r _ server; do echo "$f $server"; done
done
s apiservers
for p in /proc/[0-9]*; do
	if read -r n <"$p/comm" && [ "$n" = kube-apiserver ]; then
		tr '\0' '\n' <"$p/cmdline" | grep -E '^--(etcd-servers|secure-port)=' | tr '\n' ' '
		echo
	fi
done 2>/dev/null
s former
former 2>/dev/null | while read -r _ _ _ address _; do echo "${address%/*}"; done
for f in -4 -6; do ip $f route show proto "$PROTOCOL"; done 2>/dev/null | while read -r to _; do echo "route to ${to%/32}"; done
for f in $FILES; do s "$f"; cat "$f" 2>/dev/null; done
s end
