# shellcheck shell=sh
# Packages of the operating system. Inputs are functions: list prints what is installed, plan what an installation would do,
# names reads the names of the packages out of that, refresh reads again what there is, get installs, and after is called
# at the end. The functions of the ledger are at hand.

# leaves notes a path that a package leaves, and those of its directories that are not there yet.
above() { d=${1%/*}; if [ -n "$d" ] && [ ! -d "$d" ]; then above "$d"; note "dir ${1%/*}"; fi; }
leaves() { above "$1"; keep "$1"; }

# dnf_plan prints the packages that dnf and yum list under "Installing", in a column that begins after one blank; with y
# also those that come in another version.
dnf_plan() {
	while IFS= read -r l; do
		case "$l" in
		Installing*) on=y ;; Upgrading*|Updating*|Downgrading*) on=$1 ;; [A-Z]*) on= ;; "  "*|"") ;;
		" "*) if [ -n "$on" ]; then l=${l# }; echo "${l%% *}"; fi ;;
		esac
	done
}

# apt_plan prints what apt-get -s lists, but for what goes that kubexm has installed itself.
apt_plan() { while read -r what name more; do if [ "$what" != Remv ] || ! noted "package $name"; then echo "$what $name $more"; fi; done; }

# install_packages notes all packages that will come along before any does, so that they can all go again, whenever the
# power is cut; and, should the plan have been misread, those that came. What was there before is never noted, nor what
# others install meanwhile. What apt removes to make room, as for chrony other time services, is noted as lost, unless
# it is ours.
nl='
'
new() { while read -r n; do case "$nl$was$nl" in *"$nl$n$nl"*) ;; *) echo "$n" ;; esac; done; }
foresee() {
	# shellcheck disable=SC2034 # of the ledger
	out=$(plan) && later=y && for n in $(printf '%s\n' "$out" | grep '^Remv ' | cut -d' ' -f2); do noted "package $n" || note "lost $n" || return 1; done &&
		for n in $(printf '%s\n' "$out" | names | new); do note "package $n" || return 1; done && settle
}
install_packages() {
	was=$(list); rc=0
	{ foresee || { refresh && foresee; }; } >&2 && { get || { refresh && foresee && get; }; } >&2 || rc=$?
	for n in $(list | new); do note "package $n"; done
	after; exit $rc
}
