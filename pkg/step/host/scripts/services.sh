# shellcheck shell=sh
# Services that are not to run, now and at boot: the arguments.

# on tells whether a service runs or starts at boot. That of ufw does both, and does nothing unless ufw is in use; and
# `ufw enable` loads its rules without it.
boots() { [ "$(systemctl is-enabled "$1" 2>/dev/null)" = enabled ]; }
rules() { [ "$1" = ufw ] && iptables -S ufw-user-input >/dev/null 2>&1; }
on() {
	if [ "$1" = ufw ] && ! grep -qsi '^ENABLED=yes' /etc/ufw/ufw.conf; then return 1; fi
	boots "$1" || systemctl is-active -q "$1" || rules "$1"
}
all_off() { for s; do if on "$s"; then return 1; fi; done; }

# turn_off stops services. One that has loaded rules is started first: to stop what does not run would leave them.
turn_off() {
	for s; do
		if on "$s"; then
			if rules "$s"; then systemctl start "$s" || :; fi
			if boots "$s"; then note "enabled $s"; fi
			if systemctl is-active -q "$s"; then note "active $s"; fi
			systemctl -q disable --now "$s"
		fi
	done
}
turn_on() {
	for s; do
		if was "enabled $s"; then systemctl -q enable "$s"; fi
		if was "active $s"; then systemctl start "$s"; fi
	done
}
