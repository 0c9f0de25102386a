# shellcheck shell=sh
# A timer of systemd. Inputs: NAME of it and of its service, DIGEST of their files, CALENDAR, when it elapses.

# takes_time fails where systemd does not take the time; before version 236 it cannot be asked.
takes_time() {
	if ! systemd-analyze --help 2>/dev/null | grep -q calendar; then return; fi
	why=$(systemd-analyze calendar "$CALENDAR" 2>&1) || { echo "systemd does not take the time $CALENDAR: $why" >&2; return 1; }
}

# timer_runs tells whether it waits for its time, as its files say.
timer_runs() {
	systemctl -q is-enabled "$NAME.timer" && systemctl -q is-active "$NAME.timer" &&
		systemctl show "$NAME.service" -p Environment | grep -q "KUBEXM_DIGEST=$DIGEST\$"
}

start_timer() {
	systemctl daemon-reload
	systemctl -q enable --now "$NAME.timer"
}

stop_timer() {
	if [ -e "/etc/systemd/system/$NAME.timer" ]; then systemctl -q disable --now "$NAME.timer"; fi
}
