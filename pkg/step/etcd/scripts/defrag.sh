# shellcheck shell=sh
# Gives freed space of the member of etcd of a host back to the disk. Inputs: those of member.sh.

# all_well fails unless all members answer: a member answers nobody meanwhile, and the others must do without it.
all_well() {
	ctl endpoint health --cluster >/dev/null || { echo "not all members of etcd are well: nothing is defragmented" >&2; return 1; }
}

defrag() {
	all_well
	is=$(ctl endpoint status -w json)
	size=$(field dbSize "$is") used=$(field dbSizeInUse "$is") me=$(field member_id "$is")
	free=$((size - used))
	if [ $free -lt $((size / 5)) ] || [ $free -lt 1048576 ]; then echo "$free of $size bytes are free: that is not worth the pause"; return; fi
	if [ "$me" = "$(field leader "$is")" ]; then
		other=$(ctl member list -w simple | grep -v "^$(printf %x "$me")," | grep ', started, .*, false$' | head -n 1)
		if [ -n "$other" ]; then ctl move-leader "${other%%,*}"; fi
	fi
	ctl defrag --command-timeout=10m
	ctl endpoint status -w simple
	all_well
}
