#!/bin/sh
# Starts a node: launch.sh LOG CGROUP_DIRS(space separated) PROGRAM ARGS...
# Joins the cgroups first so that everything the node ever starts stays in them.
# A node that restarts itself ends with status 133 (systemd-nspawn, --keep-unit), and is started again, without the cgroups that it had made. Its network stays.
dirs=$2
for dir in $dirs; do echo $$ > "$dir/cgroup.procs" || exit 1; done
exec > "$1" 2>&1 < /dev/null
shift 2
while :; do
	"$@"
	rc=$?
	[ "$rc" = 133 ] || exit "$rc"
	for dir in $dirs; do find "$dir" -mindepth 1 -depth -type d -exec rmdir {} \; 2>/dev/null; done
done
