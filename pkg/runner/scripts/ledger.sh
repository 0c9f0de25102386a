# shellcheck shell=sh
# What every script that changes a host begins with. Input: S, kubexm's directory on the host.
#
# keep remembers what was at a path before kubexm, made remembers directories that kubexm made, edited the edit
# of a file that others edit too, note anything else. What they wrote is on the disk when they return, but between
# later=y and settle only then: after a power cut, what kubexm changed must not pass for what was there before.
#
# A line of the ledger ends with a newline, or it is not believed: a full disk may have torn it, and "path /etc" is no part
# of "path /etc/x" that anybody may act upon. whole gives a torn line an end that says so, before another
# is added to it.
L=$S/ledger B=$S/before later='' looked=''
safe() { sync "$@" 2>/dev/null || sync; }
whole() { [ ! -s "$L" ] || [ "$(tail -c 1 "$L" | wc -l)" -eq 1 ] || printf '\ttorn\n' >>"$L"; }
noted() { { [ "$looked" ] || { whole && looked=y; }; } && grep -qxF -e "$1" "$L" 2>/dev/null; }
add() {
	private && whole || return 1
	printf '%s\n' "$1" >>"$L" || { looked=''; return 1; }
	case $later in '') safe "$L" ;; *) later=added ;; esac
}
# What was in a directory that only root may enter stays so.
# shellcheck disable=SC2174 # the directories above it are for all
private() { [ -d "$B" ] || mkdir -p -m 700 "$B"; }
settle() { if [ "$later" = added ]; then safe "$L"; fi; later=''; }
note() { noted "$1" || add "$1"; }
own() { case $1 in "$S" | "$S"/*) return 0 ;; esac; return 1; }
keep() {
	if own "$1" || noted "path $1"; then return; fi
	rm -rf "$B$1" # of an earlier line, which is undone
	if [ -e "$1" ] || [ -L "$1" ]; then
		private; mkdir -p "$B${1%/*}"; rm -rf "$B$1.part"; cp -a "$1" "$B$1.part"
		if [ -d "$1" ]; then sync; else safe "$B$1.part"; fi
		mv -f "$B$1.part" "$B$1"
	fi
	add "path $1"
}
edited() {
	if [ -L "$1" ]; then keep "$1"; elif [ ! -e "$1" ]; then note "file $1"; fi
	note "$2"
}
made() {
	if [ -z "$1" ] || [ -d "$1" ]; then return; fi
	made "${1%/*}"
	own "$1" || note "dir $1"
	mkdir "$1" 2>/dev/null || [ -d "$1" ]
}
