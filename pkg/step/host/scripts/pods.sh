# shellcheck shell=sh
# The name of the API server in the copies of /etc/hosts that pods on the host's network have. Inputs: NAME, and ADDRESS
# to which it is to lead.

stale() { for f in /var/lib/kubelet/pods/*/etc-hosts; do if grep -qs " $NAME\$" "$f" && ! grep -qxF "$ADDRESS $NAME" "$f"; then echo "$f"; fi; done; }
renew() { stale | while read -r f; do t=$(sed "s/^[^ ]* $NAME\$/$ADDRESS $NAME/" "$f"); printf '%s\n' "$t" >"$f"; done; }
