# shellcheck shell=sh
# Takes a snapshot of the member of etcd of a host. Inputs, beside those of member.sh: D, the directory of its data; B, that of the snapshots; KEEP, how many stay.

backup() {
	umask 022
	mkdir -p "$B"
	umask 077
	part=$D/kubexm-snapshot.part at=$(date -u +%Y%m%dT%H%M%SZ)
	trap 'ended $?' EXIT
	trap 'exit 143' TERM INT # by which some shells end without the other
	prune
	rm -f "$part"* "$B"/.*.part
	need=$(($(stat -c %s "$D/member/snap/db") * 5 / 4096 + 65536))
	for d in "$D" "$B"; do # etcd must not run out of space by it
		free=$(df -Pk "$d" | { read -r _; read -r _ _ _ f _; echo "$f"; })
		if [ "$free" -lt $need ]; then echo "$d has $free KiB free, and a snapshot of etcd needs $need KiB" >&2; exit 1; fi
	done
	ctl snapshot save "$part"
	if [ "$(head -c -32 "$part" | sha256sum | head -c 64)" != "$(tail -c 32 "$part" | od -An -v -tx1 | tr -d ' \n')" ]; then
		echo "the snapshot does not have the checksum that etcd has given it" >&2; exit 1
	fi
	mv -f "$part" "$B/.$at.part"
	sync "$B/.$at.part"
	mv -f "$B/.$at.part" "$B/etcd-$at.db"
	prune
}

# prune removes all but the newest snapshots.
prune() { find "$B/" -maxdepth 1 -name 'etcd-*Z.db' | sort -r | tail -n "+$((KEEP + 1))" | while read -r old; do rm -f "$old"; done; }

# ended writes how it went for Prometheus' node exporter, which reads such files of a directory.
ended() {
	rm -f "$part"*
	if [ "$1" = 0 ]; then date +%s >"$B/.succeeded"; fi
	printf 'kubexm_etcd_backup_success %s\nkubexm_etcd_backup_last_success_timestamp_seconds %s\n' "$(($1 == 0))" "$(cat "$B/.succeeded" 2>/dev/null || echo 0)" >"$B/.prom"
	chmod 644 "$B/.prom"
	mv -f "$B/.prom" "$B/etcd-backup.prom"
}
