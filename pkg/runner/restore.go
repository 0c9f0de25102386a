package runner

import (
	"context"
	"fmt"
)

// restore walks the ledger backwards and undoes each line. Units go first, as systemd
// disables only those whose files are there.
// Verbs: path (put back what was there, or remove), block (cut the lines between two
// markers, with them; tabs are between the three), fstab (turn on again what kubexm
// has commented out), file (remove when empty), dir (remove when empty), mode (a directory's permissions and owner,
// with tabs between the three; delete may have removed it),
// unit (disable and stop), service (restart as it was), sysctl (set the old value), module (unload
// unless in use), swap (turn on), package (remove), lost (install again what had to make room for a package),
// enabled and active (services of others that are on again at boot, and now), selinux (boot: enforcing again from the
// next boot; now: again at once). A directory that others filled stays.
// The ledger and what was there before are forgotten only when all files are as they were: a
// disk that is full or a power cut leaves what the next Restore needs.
const restore = `set +e; S=` + StateDir + `; L=$S/ledger; B=$S/before; [ -f "$L" ] || { rm -rf $S; exit 0; }
T=$(printf '\t'); bad=
put() { sync "$t" 2>/dev/null || sync; mv -fT "$t" "$v"; }
# Not in place: whatever happens, there is either the old file or the new one.
back() { if [ -e "$B$v" ] || [ -L "$B$v" ]; then mkdir -p "${v%/*}" && rm -rf "$t" && cp -a "$B$v" "$t" || return 1
if [ -d "$v" ] && ! [ -L "$v" ]; then rm -rf "$v"; fi; put; else rm -rf "$v"; fi; }
cut() { h=; b=; while IFS= read -r x || [ -n "$x" ]; do
if [ "$x" = "$1" ]; then printf %s "$h" || return 1; b=y; h=; fi
if [ -z "$b" ]; then printf '%s\n' "$x" || return 1; elif [ "$x" = "$2" ]; then b= h=; else h="$h$x
"; fi; done; printf %s "$h"; }
unblock() { v=${1%%"$T"*}; m=${1#*"$T"}; t=$v.kubexm; grep -qxF -e "${m%"$T"*}" "$v" 2>/dev/null || return 0
cp -a "$v" "$t" && cut "${m%"$T"*}" "${m#*"$T"}" <"$v" >"$t" && put; }
while IFS= read -r l; do all="$l
$all"; done <"$L"
units=; services=; pkgs=; lost=; enabled=; active=; swaps=; modules=; E=/etc/selinux/config
while IFS= read -r l; do case "$l" in
'unit '*) v=${l#* }; systemctl disable --now "$v" 2>/dev/null; systemctl reset-failed "$v" 2>/dev/null; units=y;;
esac; done <<END
$all
END
while IFS= read -r l; do v=${l#* }; t=$v.kubexm; case "$l" in
'path '*) back || bad="$bad $v"; rm -rf "$t" "${v%/*}/.${v##*/}.kubexm".*;;
'block '*) unblock "$v" || bad="$bad $v"; rm -f "$t" "${v%/*}/.${v##*/}.kubexm".*;;
'fstab '*) if grep -q '^# kubexm: ' "$v" 2>/dev/null; then sed -i 's/^# kubexm: //' "$v" || bad="$bad $v"; fi;;
'file '*) [ -s "$v" ] || rm -f "$v";;
'dir '*) rmdir "$v" 2>/dev/null;;
'mode '*) m=${v#*"$T"}; v=${v%%"$T"*}; if mkdir -p "$v" 2>/dev/null; then { chown "${m#*"$T"}" "$v" && chmod "${m%"$T"*}" "$v"; } || bad="$bad $v"; fi;;
'service '*) services="$services $v";;
'sysctl '*) printf '%s\n' "${v#* }" >"/proc/sys/${v%% *}" 2>/dev/null;;
'module '*) modules="$modules $v";;
'swap '*) swaps="$swaps $v";;
'package '*) pkgs="$pkgs $v";;
'lost '*) lost="$lost $v";;
'enabled '*) enabled="$enabled $v";;
'active '*) active="$active $v";;
'selinux boot') if grep -q '^SELINUX=disabled' $E 2>/dev/null; then sed -i 's/^SELINUX=disabled/SELINUX=enforcing/' $E || bad="$bad $E"; fi;;
'selinux now') if [ -e /sys/fs/selinux/enforce ]; then echo 1 >/sys/fs/selinux/enforce; fi;;
esac; done <<END
$all
END
[ -n "$units$services" ] && systemctl daemon-reload
for s in $services; do systemctl try-restart "$s"; done >&2
for s in $swaps; do swapon "$s"; done >&2
[ -n "$modules" ] && modprobe -rq $modules 2>/dev/null
if [ -n "$bad" ]; then echo "not put back:$bad" >&2; exit 1; fi
`

// Restore undoes everything that the ledger on the host lists, newest first:
// what kubexm found is put back, what it added is removed. It works without
// the configuration that made the changes. tell is told of packages that stay, as others
// need them; nil: nobody.
func (r *Runner) Restore(ctx context.Context, tell func(text string)) error {
	out, err := r.Sh(ctx, restore+removePackages+startOthers+"sync; rm -rf "+StateDir)
	if err != nil {
		return fmt.Errorf("restoring what was there before: %w", err)
	}
	if out != "" && tell != nil {
		tell("packages that others need stay: " + out)
	}
	return nil
}

// removePackages removes the packages that kubexm installed, but none that others need:
// unlike apt and dnf, dpkg and rpm remove nothing else. One by one, when they do not go
// together, again as long as one goes.
const removePackages = `export LC_ALL=C DEBIAN_FRONTEND=noninteractive
if command -v dpkg >/dev/null; then erase() { dpkg --purge "$@" </dev/null; }; ready() { apt-get -qq -o DPkg::Lock::Timeout=300 check; }
else erase() { rpm -e "$@"; }; ready() { :; }; fi
if [ -n "$pkgs" ]; then ready >/dev/null 2>&1
if erase $pkgs >/dev/null 2>&1; then pkgs=; fi; had=
until [ "$pkgs" = "$had" ]; do had=$pkgs; pkgs=
for p in $had; do m=$(erase "$p" 2>&1) || case "$m" in *needed\ by*|*dependency\ problems*) pkgs="$pkgs $p";; *not\ installed*) ;; *) echo "$m" >&2; exit 1;; esac; done; done
echo $pkgs; fi
`

// startOthers installs what had to make room for packages that are gone now, from files in lost where there are some, removing nothing for it, and turns on
// the services of others again, but those that are there no more. Without a time service or a firewall
// that was there before, a machine is not as it was: then Restore does not end well.
const startOthers = `gone=; get() { apt-get -q -o DPkg::Lock::Timeout=300 "$@"; }
for p in $lost; do if ! dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed; then
for f in "$S/lost/$p"_*.deb; do if [ -e "$f" ]; then p=$f; fi; done; gone="$gone $p"; fi; done
again() { get install -y --no-install-recommends --no-remove $gone; }
if [ -n "$gone" ] && ! { again || { get update && again; }; } >&2; then
echo "packages that made room for kubexm's can not be installed again:$gone; install them by hand, or strike their lines in $L, and delete once more" >&2; exit 1; fi
for s in $enabled; do systemctl -q enable "$s"; done >&2
for s in $active; do systemctl start "$s" || [ $? = 5 ] || bad="$bad $s"; done >&2
if [ -n "$bad" ]; then echo "not started again:$bad" >&2; exit 1; fi
`
