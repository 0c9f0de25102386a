# shellcheck shell=sh
# A static pod. What changes the host has the functions of the ledger at hand.

# replace_pod puts the manifest of another pod: NOTES, where the one before has noted what it has read. The kubelet makes that directory.
replace_pod() { keep "${1%/}"; rm -f "$1loaded"; files; }

# reload_pod lets the program of a static pod read files again, see reload_service: POD DIRECTORY CHECK SUMS NOTES SIGNAL. Where there is no such
# container yet, it will read them.
reload_pod() {
	files
	containers=$(crictl ps -q --name "^$1\$" --label io.kubernetes.pod.namespace=kube-system)
	for c in $containers; do
		crictl exec "$c" sh -ec "cd $2; $3
			workers() { grep -lx 'PPid:.1' /proc/[0-9]*/status 2>/dev/null || true; }
			was=\$(workers); i=0
			$4 >$5loading; echo reloading >$5loaded; kill -s $6 1
			until workers | grep -qvxF -e \"\$was\"; do
				if [ \$i -ge 200 ]; then echo '$1 has no worker with the new files' >&2; exit 1; fi
				i=\$((i+1)); sleep 0.05
			done
			mv -f $5loading $5loaded"
	done
}
