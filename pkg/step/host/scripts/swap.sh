# shellcheck shell=sh
# Swap, now and in /etc/fstab.

at_boot() { [ -f /etc/fstab ] && [ -n "$(sed -n '/^[^#].*[[:space:]]swap[[:space:]]/p' /etc/fstab)" ]; }
is_off() { [ "$(wc -l </proc/swaps)" -le 1 ] && ! at_boot; }
turn_off() {
	while read -r dev _; do case "$dev" in /*) note "swap $dev"; swapoff "$dev" ;; esac; done </proc/swaps
	if at_boot; then note 'fstab /etc/fstab'; sed -i 's/^[^#].*[[:space:]]swap[[:space:]]/# kubexm: &/' /etc/fstab; fi
}
turn_on() {
	if [ -f /etc/fstab ]; then sed -i 's/^# kubexm: //' /etc/fstab; fi
	while read -r verb dev; do if [ "$verb" = swap ]; then swapon "$dev" || true; fi; done <"$S/ledger"
}
