#!/bin/sh
# Installs what `make test` and `make lint` need and this machine lacks: a C compiler for the
# race detector, an sshd to test against (the tests start their own, on
# loopback), one more shell for scripts, and what checks these. Says what it does; does nothing where all is there.
set -eu
missing=""
need() { # PROGRAM PACKAGES...
	program=$1
	shift
	command -v "$program" >/dev/null 2>&1 || [ -x "/usr/sbin/$program" ] || missing="$missing $*"
}
need gcc gcc libc6-dev
need sshd openssh-server
need ssh-keygen openssh-client
need sudo sudo
need shellcheck shellcheck
need busybox busybox
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "tests need what these Debian packages bring:$missing (some tests are skipped without)" >&2
	exit 0
fi
echo "installing Debian packages:$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list
apt-get -qq install -y --no-install-recommends $missing >/dev/null 2>&1 || {
	apt-get -qq update
	apt-get -qq install -y --no-install-recommends $missing >/dev/null
}
