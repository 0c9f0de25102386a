# shellcheck shell=sh
# Undoes the ledger, line by line backwards. After ledger.sh. Input: ONLY, the lines to undo, or nothing: all.
#
# Units go first, as systemd disables only those whose files are there.
# Verbs: path (put back what was there, or remove), block (cut the lines between two markers, with them; tabs are between
# the three), fstab (turn on again what kubexm has commented out), file (remove when empty), dir (remove when empty), mode
# (a directory's permissions and owner, with tabs between the three; delete may have removed it), unit (disable and stop),
# service (restart as it was), sysctl (set the old value), module (unload unless in use), swap (turn on), package (remove),
# lost (install again what had to make room for a package), enabled and active (services of others that are on again at
# boot, and now), selinux (boot: enforcing again from the next boot; now: again at once). A directory that others filled
# stays. The ledger and what was there before are forgotten only when all files are as they were: a disk that is full or a
# power cut leaves what the next try needs.
set +e
T=$(printf '\t') N='
'
E=/etc/selinux/config bad=''
putback() { sync "$t" 2>/dev/null || sync; mv -fT "$t" "$v"; }

# Not in place: whatever happens, there is either the old file or the new one.
back() {
	if [ ! -e "$B$v" ] && [ ! -L "$B$v" ]; then rm -rf "$v"; return; fi
	mkdir -p "${v%/*}" && rm -rf "$t" && cp -a "$B$v" "$t" || return 1
	if [ -d "$v" ] && ! [ -L "$v" ]; then rm -rf "$v"; fi
	putback
}

# cut passes on what is outside of two marker lines.
cut() { # BEGIN END
	h='' b=''
	while IFS= read -r x || [ -n "$x" ]; do
		if [ "$x" = "$1" ]; then printf %s "$h" || return 1; b=y; h=''; fi
		if [ -z "$b" ]; then printf '%s\n' "$x" || return 1
		elif [ "$x" = "$2" ]; then b='' h=''
		else h="$h$x$N"; fi
	done
	printf %s "$h"
}
unblock() { # PATH, BEGIN and END, with tabs between them
	v=${1%%"$T"*}; m=${1#*"$T"}; t=$v.kubexm
	grep -qxF -e "${m%"$T"*}" "$v" 2>/dev/null || return 0
	cp -a "$v" "$t" && cut "${m%"$T"*}" "${m#*"$T"}" <"$v" >"$t" && putback
}

# forget takes lines from the ledger before what they put back goes: without it, they would remove that.
forget() { # LINES
	sync
	whole || return 1
	(while IFS= read -r l; do case $N$1 in *"$N$l$N"*) ;; *) printf '%s\n' "$l" || exit 1 ;; esac; done) <"$L" >"$L.part" || return 1
	safe "$L.part" && mv -f "$L.part" "$L" && safe "$L" || return 1
	while IFS= read -r l; do case $l in 'path '*) v=${l#* }; rm -rf "$B$v" "$S/previous$v" "$S/sums$v" ;; esac; done <<END
$1
END
}

# The lines to undo, newest first. One that has no end was torn, and read does not return it.
all=''
if [ -f "$L" ]; then
	while IFS= read -r l; do
		case $l in *"${T}torn") continue ;; esac
		case ${ONLY:+"$N$ONLY$N"} in '' | *"$N$l$N"*) all="$l$N$all" ;; esac
	done <"$L"
fi
units='' services='' pkgs='' lost='' enabled='' active='' swaps='' modules='' files=''
while IFS= read -r l; do
	case $l in 'unit '*)
		v=${l#* }; systemctl disable --now "$v" 2>/dev/null; systemctl reset-failed "$v" 2>/dev/null; units=y ;;
	esac
done <<END
$all
END
while IFS= read -r l; do
	v=${l#* }; t=$v.kubexm
	case $l in 'package '* | 'lost '* | 'enabled '* | 'active '*) ;; *) files="$files$l$N" ;; esac
	case $l in
	'path '*) back || bad="$bad $v"; rm -rf "$t" "${v%/*}/.${v##*/}.kubexm".* ;;
	'block '*) unblock "$v" || bad="$bad $v"; rm -f "$t" "${v%/*}/.${v##*/}.kubexm".* ;;
	'fstab '*) if grep -q '^# kubexm: ' "$v" 2>/dev/null; then sed -i 's/^# kubexm: //' "$v" || bad="$bad $v"; fi ;;
	'file '*) [ -s "$v" ] || rm -f "$v" ;;
	'dir '*) rmdir "$v" 2>/dev/null ;;
	'mode '*)
		m=${v#*"$T"}; v=${v%%"$T"*}
		if mkdir -p "$v" 2>/dev/null; then { chown "${m#*"$T"}" "$v" && chmod "${m%"$T"*}" "$v"; } || bad="$bad $v"; fi ;;
	'service '*) services="$services $v" ;;
	'sysctl '*) printf '%s\n' "${v#* }" >"/proc/sys/${v%% *}" 2>/dev/null ;;
	'module '*) modules="$modules $v" ;;
	'swap '*) swaps="$swaps $v" ;;
	'package '*) pkgs="$pkgs $v" ;;
	'lost '*) lost="$lost $v" ;;
	'enabled '*) enabled="$enabled $v" ;;
	'active '*) active="$active $v" ;;
	'selinux boot') if grep -q '^SELINUX=disabled' $E 2>/dev/null; then sed -i 's/^SELINUX=disabled/SELINUX=enforcing/' $E || bad="$bad $E"; fi ;;
	'selinux now') if [ -e /sys/fs/selinux/enforce ]; then echo 1 >/sys/fs/selinux/enforce; fi ;;
	esac
done <<END
$all
END
# shellcheck disable=SC2086 # all these are lists
{
	[ -n "$units$services" ] && systemctl daemon-reload
	for s in $services; do systemctl try-restart "$s"; done >&2
	for s in $swaps; do swapon "$s"; done >&2
	[ -n "$modules" ] && modprobe -rq $modules 2>/dev/null
}
if [ -n "$bad" ]; then echo "not put back:$bad" >&2; exit 1; fi

# The packages that kubexm installed go, but none that others need: unlike apt and dnf, dpkg and rpm remove nothing
# else. One by one, when they do not go together, again as long as one goes. Those that stay are printed.
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
if command -v dpkg >/dev/null; then
	erase() { dpkg --purge "$@" </dev/null; }
	ready() { apt-get -qq -o DPkg::Lock::Timeout=300 check; }
else
	erase() { rpm -e "$@"; }
	ready() { :; }
fi
# What was put back may be a package's, and go with it: should the power fail then, the next try must not put it back again.
# shellcheck disable=SC2086 # a list
if [ -n "$pkgs" ]; then
	forget "$files" || exit 1
	ready >/dev/null 2>&1
	if erase $pkgs >/dev/null 2>&1; then pkgs=''; fi
	had=''
	until [ "$pkgs" = "$had" ]; do
		had=$pkgs; pkgs=''
		for p in $had; do
			m=$(erase "$p" 2>&1) || case $m in
			*needed\ by* | *dependency\ problems*) pkgs="$pkgs $p" ;;
			*not\ installed*) ;;
			*) echo "$m" >&2; exit 1 ;;
			esac
		done
	done
	if [ -n "$pkgs" ]; then echo "packages that others need stay:$pkgs"; fi
fi

# What had to make room for packages that are gone now is installed again, from files in lost where there are some,
# removing nothing for it, and services of others are turned on again, but those that are there no more. Without a time
# service or a firewall that was there before, a machine is not as it was: then this does not end well.
gone=''
get() { apt-get -q -o DPkg::Lock::Timeout=300 "$@"; }
for p in $lost; do
	# shellcheck disable=SC2016 # dpkg-query expands it
	if dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed; then continue; fi
	for f in "$S/lost/$p"_*.deb; do if [ -e "$f" ]; then p=$f; fi; done
	gone="$gone $p"
done
# shellcheck disable=SC2086 # a list
again() { get install -y --no-install-recommends --no-remove $gone; }
if [ -z "$gone" ] || { again || { get update && again; }; } >&2; then lost=''
elif [ -z "$ONLY" ]; then
	echo "packages that made room for kubexm's cannot be installed again:$gone; install them by hand, or strike their lines in $L, and delete once more" >&2
	exit 1
else echo "packages that made room are not installed again, others of kubexm may still need it:$gone"; fi
for s in $enabled; do systemctl -q enable "$s"; done >&2
for s in $active; do systemctl start "$s" || [ $? = 5 ] || bad="$bad $s"; done >&2
if [ -n "$bad" ]; then echo "not started again:$bad" >&2; exit 1; fi
sync

if [ -z "$ONLY" ]; then
	rm -rf "${S:?}"/* "$S"/.[!.]* || exit 1
	rmdir "$S" 2>/dev/null # unless it is a file system of its own
	exit 0
fi

# A package that stayed, or stayed away, keeps its line.
for p in $pkgs; do all=${all%%"package $p$N"*}${all#*"package $p$N"}; done
for p in $lost; do all=${all%%"lost $p$N"*}${all#*"lost $p$N"}; done
forget "$all"
