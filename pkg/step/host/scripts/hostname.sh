# shellcheck shell=sh
# The host name. Input: NAME.
KERNEL=/proc/sys/kernel/hostname

is_named() { [ "$(cat $KERNEL)" = "$NAME" ] && [ "$(cat /etc/hostname)" = "$NAME" ]; }
set_name() {
	if [ "$(cat $KERNEL)" != "$NAME" ]; then note "sysctl kernel/hostname $(cat $KERNEL)"; echo "$NAME" >$KERNEL; fi
	keep /etc/hostname; echo "$NAME" >/etc/hostname.kubexm; mv -fT /etc/hostname.kubexm /etc/hostname
}
put_name_back() {
	put_back /etc/hostname
	while read -r verb k was; do if [ "$verb $k" = 'sysctl kernel/hostname' ]; then echo "$was" >$KERNEL; break; fi; done <"$S/ledger"
}
