# shellcheck shell=sh
# SELinux, now and from the next boot on.
NOW=/sys/fs/selinux/enforce CONF=/etc/selinux/config

enforced() { [ "$(cat $NOW 2>/dev/null)" = 1 ]; }
at_boot() { grep -qs '^SELINUX=enforcing' $CONF; }
turn_off() {
	if at_boot; then note 'selinux boot'; sed -i 's/^SELINUX=enforcing/SELINUX=disabled/' $CONF; fi
	if enforced; then note 'selinux now'; echo 0 >$NOW; fi
}
turn_on() {
	if was 'selinux boot'; then sed -i 's/^SELINUX=disabled/SELINUX=enforcing/' $CONF; fi
	if was 'selinux now'; then echo 1 >$NOW; fi
}
