# shellcheck shell=sh
# Who works on a cluster. Input: D, the directory of the lock on the host, which a reboot empties.
#
# The lock is a file of three lines: a token, the uptime in seconds at which it expires, and whose it is. Uptime, not
# the clock: that is set, also by kubexm. After a reboot it is less than when the lock was taken, and the lock has expired. A
# file in a directory of root's, as flock takes any file that can be opened, and anybody may do that.

# lock takes the lock, or renews it. While another holds it, it prints whose it is and ends with status 73.
lock() { # TOKEN SECONDS HOLDER
	(umask 077; mkdir -p "$D") && read -r up _ </proc/uptime || return 1
	up=${up%.*}; until=$((up + $2)); mine=$D/lock.$1
	(umask 077; printf '%s\n' "$1" "$until" "$3" >"$mine") || { rm -f "$mine"; return 1; }
	for _ in 1 2 3; do
		if ln "$mine" "$D/lock" 2>/dev/null; then rm -f "$mine"; return; fi
		held
		if [ "$token" = "$1" ]; then mv -f "$mine" "$D/lock"; return; fi
		if [ "$up" -lt "$expires" ] && [ "$expires" -le "$until" ]; then rm -f "$mine"; echo "$holder"; return 73; fi
		# It has expired, but another may be quicker to take it: what is moved away must be what was looked at.
		mv -f "$D/lock" "$mine.old" 2>/dev/null || continue
		read -r other <"$mine.old" || :
		if [ "$other" != "$token" ]; then ln "$mine.old" "$D/lock" 2>/dev/null || :; fi
		rm -f "$mine.old"
	done
	rm -f "$mine"
	echo "$D/lock cannot be made" >&2
	return 1
}

# held reads the lock: token, expires and holder, empty and 0 where there is none.
held() {
	token='' expires=0 holder=''
	if [ -f "$D/lock" ]; then { read -r token && read -r expires && read -r holder; } 2>/dev/null <"$D/lock" || :; fi
	case $expires in '' | *[!0-9]*) expires=0 ;; esac
}

# unlock removes the lock of a token, or any if that is empty, and the directory where that is all there was in it.
unlock() { # TOKEN
	held
	if [ -z "$1" ] || [ "$token" = "$1" ]; then rm -f "$D/lock" "$D/lock.$1" "$D/lock.$1.old"; fi
	rmdir "$D" 2>/dev/null || :
}
