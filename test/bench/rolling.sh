#!/usr/bin/env bash
# rolling.sh changes one argument of the API servers of a cluster by hand, as a careful operator does who knows it
# well: on one master after the other, and before the first and after each one all members of etcd are healthy and all API
# servers ready. One multiplexed SSH connection for each master, no wait but on the thing itself; it cannot be undone.
#
#   MASTERS     addresses; each runs a member of etcd and an API server, under systemd or as static pods
#   KEY, KNOWN  private key and known hosts for ssh, as root
#   ARG, VALUE  what to change: an argument that each API server has, without dashes
set -Eeuo pipefail

T=$(mktemp -d)
trap 'for h in $MASTERS; do ssh -o ControlPath=$T/%h.ssh -O exit $h; done 2>/dev/null; rm -rf $T' EXIT

on() { # HOST COMMAND: as root
  ssh -i "$KEY" -o UserKnownHostsFile="$KNOWN" -o IdentitiesOnly=yes -o ControlMaster=auto -o ControlPath="$T/%h.ssh" -o ControlPersist=60 "root@$1" "$2"
}

# shellcheck disable=SC2016 # expanded there
library="MASTERS='$MASTERS' ARG=$ARG VALUE=$VALUE"'
pod=/etc/kubernetes/manifests/kube-apiserver.yaml
if [ -f $pod ]; then file=$pod; else file=$(grep -l -e "--$ARG=" /etc/systemd/system/kube-apiserver.service.d/*.conf); fi
has() { sed -n "s/.*--$1=\([^ \"\\\\]*\).*/\1/p" "$file"; }
until_ok() { n=0; until "$@"; do n=$((n + 1)); [ $n -lt 3000 ] || { echo "gave up: $*" >&2; exit 1; }; sleep 0.1; done; }
ask() { curl -sf --max-time 5 --cacert "$@"; }
healthy() { ask "$(has etcd-cafile)" --cert "$(has etcd-certfile)" --key "$(has etcd-keyfile)" "https://$1:2379/health" | grep -q "\"health\":\"true\""; }
ready() { ask "$(has client-ca-file)" "https://$1:6443/readyz" >/dev/null; }
well() { for m in $MASTERS; do until_ok healthy "$m"; until_ok ready "$m"; done; }
current() { pgrep -f "^[^ ]*kube-apiserver .*--$ARG=$VALUE( |$)" >/dev/null; }
change() {
  cp -p "$file" /root/new && sed -i "s/--$ARG=[^ \"\\\\]*/--$ARG=$VALUE/" /root/new && mv /root/new "$file"
  if [ "$file" != $pod ]; then systemctl daemon-reload && systemctl restart kube-apiserver; fi
  until_ok current
  well
}
set -eu
'

for h in $MASTERS; do on "$h" true & done # one connection each, for all that follows
wait
on "${MASTERS%% *}" "$library well"
for h in $MASTERS; do on "$h" "$library change"; done
