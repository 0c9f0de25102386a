# shellcheck shell=sh
# How content comes from standard input into a file that is whole or not there. After ledger.sh.
#
# temp names the temporary file of a path: one of the script's own, as that of a connection that was lost may live
# on for long, and hidden, as the kubelet reads all others in its directory of static pods. It begins with as many bytes
# of another one as are said; spare removes those that were left behind, but one. bytes passes on so many of standard
# input, in the pieces in which sshd writes: a fifth quicker than head -c. drop removes the temporary file and ends the
# script with a status.
temp() { # PATH [PART SIZE]
	o=${1%/*}/.${1##*/}.kubexm; t=$o.$$
	while [ -e "$t" ]; do t=${t}0; done
	if [ "${3:-0}" != 0 ]; then head -c "$3" "$2" >"$t" || drop 75; fi
	spare "$1" "$t"
}
spare() { for o in "${1%/*}/.${1##*/}.kubexm".*; do if [ "$o" != "$2" ]; then rm -f "$o"; fi; done; }
bytes() { dd bs=32k iflag=fullblock,count_bytes count="$1" status=none; }
sized() { [ "$(stat -c %s "$t")" = "$1" ] || { echo "content of $2 cut short" >&2; return 65; }; }
drop() { rm -f "$t"; exit "$1"; }

# put takes the content of a path. Less of it than promised (the connection broke) changes nothing, and whatever fails
# leaves no half file.
put() { # PATH SIZE MODE OWNER
	temp "$1"
	{ (umask 077; bytes "$2" >"$t") && sized "$2" "$1" && chmod "$3" "$t" && chown "$4" "$t" && mv -fT "$t" "$1"; } || drop $?
}
