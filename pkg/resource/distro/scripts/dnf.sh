# shellcheck shell=sh
# Lets dnf tell what it would fetch for a machine without any package: the arguments are the packages. Then it prints the
# lists of packages that dnf has read for that, as they have the checksums. It keeps this machine's settings of how to
# reach servers (dnf.conf(5)), and none of its repositories; those come by standard input. Inputs: RELEASE, ARCH.
command -v dnf >/dev/null && dnf -q download --help >/dev/null 2>&1 || exit 71
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT; trap 'exit 143' TERM INT
mkdir "$T/root" "$T/repos" "$T/out"
cat >"$T/repos/release.repo"
if grep -q '^proxy=' "$T/repos/release.repo"; then no_proxy=${no_proxy:-${NO_PROXY:-}}; case $no_proxy in '*') ;; *) export no_proxy="${no_proxy:+$no_proxy,}127.0.0.1" ;; esac; fi
cd "$T/out" && dnf -q -y --installroot "$T/root" --releasever "$RELEASE" --forcearch "$ARCH" --setopt=reposdir="$T/repos" --setopt=cachedir="$T/cache" \
	--setopt=zchunk=False --setopt=excludepkgs='*.i?86' download --resolve --alldeps --url "$@" >"$T/urls" || exit
cat "$T/urls"
find "$T/cache" -name '*-primary.xml*' | while read -r f; do printf '\n= %s %s\n' "${f#"$T/cache/"}" "$(wc -c <"$f")"; cat "$f"; done
