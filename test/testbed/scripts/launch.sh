#!/bin/sh
# Starts a node: launch.sh LOG CGROUP_DIRS(space separated) PROGRAM ARGS...
# Joins the cgroups first so that everything the node ever starts stays in them.
log=$1
for dir in $2; do echo $$ > "$dir/cgroup.procs" || exit 1; done
shift 2
exec "$@" > "$log" 2>&1 < /dev/null
