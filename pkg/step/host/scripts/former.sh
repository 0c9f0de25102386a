# shellcheck shell=sh
# Lets a host have the address by which others know it, and reach those of others that moved. Input: OWN, that address, or empty; PROTOCOL, by
# which routes are found again; NEEDED, empty where it may do without others; PORT, of an API server that is waited for; functions:
# own gives the machine OWN, none takes such addresses off, moved prints former and current address of each other host. What it prints is that no API server listens.
set -e
if [ -n "$OWN" ]; then own; else none; fi
moved | while read -r former now; do
	case $now in *:*) f=-6 n=128 ;; *) f=-4 n=32 ;; esac
	w=$(ip -o $f route get "$now") || w="no route via"
	case $w in *" via"*)
		if [ -z "$NEEDED" ]; then continue; fi
		echo "$now is in no network of this machine: $w" >&2; exit 1 ;;
	esac
	w=${w#* dev }
	# shellcheck disable=SC2086 # two words or none
	ip $f route replace "$now/$n" dev "${w%% *}" scope link proto "$PROTOCOL" ${OWN:+src $OWN}
	# shellcheck disable=SC2086
	ip $f route replace "$former/$n" via "$now" proto "$PROTOCOL" ${OWN:+src $OWN}
done
if [ -z "$OWN" ] || ! { [ -e /etc/kubernetes/manifests/kube-apiserver.yaml ] || systemctl is-enabled -q kube-apiserver 2>/dev/null; }; then exit 0; fi
i=0
until ss -ltnp | grep -q ":$PORT "; do # what gave up without the address begins again
	if [ $i -ge 120 ]; then echo "no API server listens at port $PORT"; exit 0; fi
	if [ $((i % 40)) = 10 ]; then
		for u in etcd kube-apiserver kubelet; do
			if systemctl is-enabled -q $u 2>/dev/null && { [ $u = kubelet ] || ! systemctl is-active -q $u; }; then
				systemctl reset-failed $u 2>/dev/null || true
				systemctl --no-block restart $u
			fi
		done
	fi
	i=$((i+1)); sleep 1
done
