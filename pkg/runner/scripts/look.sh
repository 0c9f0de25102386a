# shellcheck shell=sh
# Looks that change nothing.

# files prints "size mode owner" and the content of each file, and "-" of one that is not there.
files() { # PATH...
	for f in "$@"; do
		if [ -f "$f" ]; then stat -L -c '%s %a %U:%G' "$f"; cat "$f"
		elif [ -e "$f" ]; then echo "$f is not a regular file" >&2; exit 1
		else echo -; fi
	done
}

# exist prints those of the paths that exist.
exist() { for f in "$@"; do if [ -e "$f" ] || [ -L "$f" ]; then echo "$f"; fi; done; } # PATH...

# ledger prints the lines of the ledger. One that has no end was torn, and read does not return it. Input: S.
ledger() {
	if [ -f "$S/ledger" ]; then
		while IFS= read -r l; do case $l in *"	torn" | "") ;; *) printf '%s\n' "$l" ;; esac; done <"$S/ledger"
	fi
}
