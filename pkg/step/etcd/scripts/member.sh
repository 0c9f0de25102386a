# shellcheck shell=sh
# Asks the member of etcd of a host. Inputs: URL of the member, CA, CERT and KEY to call it with, POD, its container's name where a pod runs it.

ctl() {
	if [ -z "$POD" ]; then set -- etcdctl "$@"; else set -- crictl exec "$(container)" etcdctl "$@"; fi
	"$@" --endpoints="$URL" --cacert="$CA" --cert="$CERT" --key="$KEY"
}
container() { crictl ps -q --name "^$POD\$" --label io.kubernetes.pod.namespace=kube-system | head -n 1; }

# field prints a number of what "-w json" of etcdctl says ("-w fields" lacks some before 3.6): NAME TEXT
field() { printf '%s\n' "$2" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" | head -n 1; }
