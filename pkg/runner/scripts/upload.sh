# shellcheck shell=sh
# shellcheck disable=SC2154 # temp sets t, hash sets h
# Large files on their way to a host. After ledger.sh, files.sh and sums.sh.

# room makes a directory and ends the script where there is no room for so many KiB. It adds up those of one file system.
rooms=''
room() { # DIRECTORY KIB
	made "$1"
	free=$(df -Pk "${1:-/}" | { read -r _; read -r _ _ _ f _; echo "$f"; })
	d=$(stat -c %d "${1:-/}"); rooms="$rooms $d:$2"; need=0
	for w in $rooms; do case $w in "$d":*) need=$((need + ${w#*:})) ;; esac; done
	if [ "$free" -lt "$need" ]; then echo "no space: ${1:-/} has $free KiB free, $need KiB are needed" >&2; exit 28; fi
}

# take takes the content of a path, or what is missing of it behind a part; whatever fails leaves no half file. A
# program that another script holds open, half, could not be run (ETXTBSY): this, too, is why each has a file of its own.
# The checksum is taken of what goes into the file, as it comes: it costs no time after the transfer.
take() { # PATH SIZE SHA256 MODE PART SIZE-OF-PART
	keep "$1"
	temp "$1" "$5" "$6"
	h=$({ if [ "$6" != 0 ]; then head -c "$6" "$t"; fi; bytes $(($2 - $6)) | tee -a "$t" || rm -f "$t"; } | hash)
	[ -f "$t" ] || exit 74 # tee has said why
	sized "$2" "$1" || exit $?
	{ right "$1" "$3" && chmod "$4" "$t" && safe "$t" && replaced "$@" && mv -fT "$t" "$1"; } || drop $?
	mkdir -p "$C${1%/*}"; echo "$h $(stat -c '%s %z %i' "$1")" >"$C$1"
}
right() { [ "$h" = "$2" ] || { echo "checksum of $1 on the host is $h, want $2" >&2; return 65; }; }

# twin makes one file of the content and the permissions of another, which are not written to any more.
twin() { rm -f "$2"; ln "$1" "$2" 2>/dev/null || { cp -a "$1" "$2" && safe "$2"; }; }

# replaced keeps the one version of a program that came before this one, for former.
replaced() { # as take
	if own "$1" || [ ! -f "$1" ]; then return 0; fi
	if [ "$(stat -c '%s 0%a' "$1")" = "$2 $4" ] && [ "$(hash "$1")" = "$3" ]; then return 0; fi # the same, once more
	p=$S/previous$1
	mkdir -p "${p%/*}" && twin "$1" "$p.part" && mv -fT "$p.part" "$p" && rm -f "$p.part" # a name of the same file is not renamed
}

# former puts the version of a program in place again that had this checksum and these permissions.
former() { # PATH SHA256 MODE
	p=$S/previous$1
	if [ -f "$1" ] && [ "$(stat -c 0%a "$1") $(hash "$1")" = "$3 $2" ]; then return; fi
	if [ ! -f "$p" ] || [ "$(hash "$p")" != "$2" ]; then echo "$1: its previous version is not kept" >&2; return 1; fi
	temp "$1"
	{ twin "$p" "$t" && chmod "$3" "$t" && mv -fT "$t" "$1"; } || drop $?
	rm -f "$p"
}
