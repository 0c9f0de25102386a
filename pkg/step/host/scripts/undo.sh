# shellcheck shell=sh
# What undoing needs of the ledger. Input: S, kubexm's directory on the host.

was() { grep -qx "$1" "$S/ledger"; }

# put_back puts back what was at paths before kubexm, unless nothing was changed there.
put_back() {
	for f; do
		if was "path $f"; then
			rm -f "$f"; o=$S/before$f
			if [ -e "$o" ] || [ -L "$o" ]; then cp -a "$o" "$f"; fi
		fi
	done
}
