# shellcheck shell=sh
# Whether a machine is to start again. Input: OWN, not empty where the machine has a kernel of its own: it is no container. KERNEL_NOTE, a file: see stays_kernel.

# next_kernel prints the kernel that starts next, as far as that can be told. grubby, of Red Hat's family, knows which one somebody has chosen.
next_kernel() {
	if command -v grubby >/dev/null 2>&1; then
		k=$(grubby --default-kernel 2>/dev/null) || k=
		case "$k" in */vmlinuz-*) echo "${k##*/vmlinuz-}"; return ;; esac
	fi
	for k in /boot/vmlinuz-*; do
		case "$k" in *'*' | *-rescue-*) ;; *) echo "${k#/boot/vmlinuz-}" ;; esac
	done | sort -V | tail -n 1
}

# other_kernel prints a line where another kernel runs than the one that starts next.
other_kernel() {
	[ -n "$OWN" ] || return 0
	is=$(uname -r) next=$(next_kernel)
	if [ -n "$next" ] && [ "$next" != "$is" ]; then echo "kernel $next is installed, $is runs"; fi
}

# stays_kernel succeeds where the machine has started before as this line of other_kernel says, by the file KERNEL_NOTE: its boot loader wants it so, and another start would change nothing.
stays_kernel() { [ "$(cat "$KERNEL_NOTE" 2>/dev/null)" = "$1" ]; }

# due prints why the machine is to start again, one reason a line. Debian notes it in a file, Red Hat's dnf-utils have a program.
due() {
	k=$(other_kernel)
	if [ -n "$k" ] && ! stays_kernel "$k"; then echo "$k"; fi
	if [ -e /run/reboot-required ]; then echo "/run/reboot-required is there"; fi
	if command -v needs-restarting >/dev/null 2>&1; then
		rc=0; needs-restarting -r >/dev/null 2>&1 || rc=$?
		if [ "$rc" = 1 ]; then echo "needs-restarting -r says so"; fi
	fi
}

# started prints the line of other_kernel after a start of the machine, where that is news.
started() {
	k=$(other_kernel)
	if [ -z "$k" ]; then rm -f "$KERNEL_NOTE"; elif ! stays_kernel "$k"; then echo "$k"; fi
}

# boot prints which boot of the machine this is.
boot() { cat /proc/sys/kernel/random/boot_id; }

# uptime_ prints for how many seconds the machine runs.
uptime_() { read -r up _ </proc/uptime; echo "${up%.*}"; }
