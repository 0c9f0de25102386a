# shellcheck shell=sh
# try connects to a port, and prints "address port status message". Input: PATIENCE, the seconds that an answer may take.
#
# bash connects by itself and is on every distribution that is supported, where nc, python or socat may be not.
export LC_ALL=C
try() { # ADDRESS PORT
	# shellcheck disable=SC2016 # bash expands it
	if said=$(timeout "$PATIENCE" bash -c ': </dev/tcp/$0/$1' "$1" "$2" 2>&1); then s=0; else s=$?; fi
	printf '%s %s %s %s\n' "$1" "$2" $s "${said##*: }"
}
