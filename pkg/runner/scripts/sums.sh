# shellcheck shell=sh
# Checksums of large files. Input: S, kubexm's directory on the host.
#
# sums prints "mode sha256 path" of each, and "part sha256 path size" of parts. A checksum that an upload recorded is
# believed while size, change time and inode are still the same, so that looking again costs no reading of hundreds of
# megabytes. A part may go away meanwhile: its connection was lost, its script goes on.
C=$S/sums
hash() { # [PATH]: else standard input
	if command -v openssl >/dev/null; then h=$(openssl dgst -sha256 -r "$@"); else h=$(sha256sum "$@"); fi
	echo "${h%% *}"
}
sums() { # PATH...
	stat -c '%a %s %z %i %n' "$@" 2>/dev/null | while read -r mode size day time zone inode f; do
		[ -f "$f" ] || continue
		h=''
		if [ -f "$C$f" ]; then
			read -r h id <"$C$f"
			[ "$id" = "$size $day $time $zone $inode" ] || h=''
		fi
		echo "$mode ${h:-$(hash "$f")} $f"
	done
	for f in "$@"; do
		for o in "${f%/*}/.${f##*/}.kubexm".*; do
			if [ -s "$o" ]; then h=$(hash "$o" 2>/dev/null); n=$(stat -c %s "$o" 2>/dev/null) && echo "part $h $o $n"; fi
		done
	done
	:
}
