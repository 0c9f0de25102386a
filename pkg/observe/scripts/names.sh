# shellcheck shell=sh
# Prints, in sections, where a host names other hosts; nothing of that is secret. Inputs: S, kubexm's directory on the host; NAME of
# the API server's endpoint; LABEL and PROTOCOL of former addresses and the routes to them; FILES of load balancers.
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
ip -o addr show dev lo label "$LABEL" 2>/dev/null | while read -r _ _ _ address _; do echo "${address%/*}"; done
ip route show proto "$PROTOCOL" 2>/dev/null | while read -r to _; do echo "route to ${to%/32}"; done
for f in $FILES; do s "$f"; cat "$f" 2>/dev/null; done
s end
