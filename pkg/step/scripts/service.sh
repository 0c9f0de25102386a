# shellcheck shell=sh
# A service of systemd. Input: UNIT, its name. What changes the host has the functions of the ledger at hand.

# service_state says what systemd and the running process know of the service. The process is systemd itself, with another
# environment or none, for a moment after the start: systemd waits for the program only with Type=exec, unknown before
# version 240. (And systemctl before 230 has no --value.) A program that writes its title over its environment has that
# in a file. What systemd holds of the unit is told by the digest in there, too: NeedDaemonReload of systemd 257 is
# "yes" for all units when any has been enabled.
service_state() {
	systemctl show "$UNIT" -p ActiveState,LoadState,UnitFileState,Environment,MainPID
	p=$(systemctl show "$UNIT" -p MainPID); p=${p#*=}; i=0; env='' exe=''
	while [ "${p:-0}" -gt 0 ] && [ $i -lt 40 ] && exe=$(readlink "/proc/$p/exe"); do
		env=$(tr '\0' '\n' <"/proc/$p/environ"); case $exe in */systemd|*/systemd-executor) env= ;; esac
		if [ -n "$env" ]; then break; fi; i=$((i+1)); sleep 0.05
	done
	if [ -n "$env" ] && [ -e "/run/kubexm-$UNIT/environ" ]; then env=$(cat "/run/kubexm-$UNIT/environ"); fi
	case $exe in *' (deleted)') # its path may have the same program again
		if [ "$(sha256sum <"/proc/$p/exe")" != "$(sha256sum <"${exe% (deleted)}")" ]; then echo program=replaced; fi ;;
	esac
	printf '%s\n' "$env" | grep KUBEXM_DIGEST
	cat "/run/kubexm-$UNIT/loaded" 2>/dev/null; true
}

# start_service lets systemd know of the unit and its files, and starts it: UNIT VERB (unit, or service where it was enabled before) ACT
# (restart, or try-restart) DIGEST KNOWN (new, or old where systemd may hold the unit). Reading all units again takes
# long; systemd reads one that it does not hold by itself. One that it holds may have been edited, the digest being
# left. A service that is enabled because kubexm has installed its package is no older than kubexm.
start_service() {
	noted "unit $1" || if noted "package $1"; then note "unit $1"; else note "$2 $1"; fi
	files; systemctl -q --no-reload enable "$1"
	case $5$(systemctl show "$1" -p Environment) in new*KUBEXM_DIGEST="$4"*) ;; *) systemctl daemon-reload ;; esac
	systemctl reset-failed "$1" 2>/dev/null || true
	systemctl "$3" "$1"
}

# reload_service lets a service read files again: UNIT. A program that cannot use them goes on as before and says so in its log alone, so it
# is waited for another worker of its main process. Only then what the unit has noted counts as loaded.
reload_service() {
	files; p=$(systemctl show "$1" -p MainPID); p=${p#*=}; was=$(workers "$p"); i=0
	systemctl reload "$1"
	until workers "$p" | grep -qvxF -e "$was"; do
		if [ $i -ge 200 ]; then echo "$1 has no worker with the new files" >&2; exit 1; fi
		i=$((i+1)); sleep 0.05
	done
	mv -f "/run/kubexm-$1/loading" "/run/kubexm-$1/loaded"
}
workers() { grep -lx "PPid:.$1" /proc/[0-9]*/status 2>/dev/null || true; } # PID
