# shellcheck shell=sh
# A member of etcd begins anew with a snapshot. Inputs: D is the directory of its data, ID names the restoration, M is the kubelet's directory of
# manifests, R says which restoration was the last to start the host again.

# pids lists the processes of the control plane, whatever runs them: by their names, of which the kernel keeps 15 characters, and their arguments, as pods may have programs of these names.
pids() {
  for p in /proc/[0-9]*; do
    if read -r n <"$p/comm"; then
      of=''
      case $n in
      etcd) of=$D ;;
      kube-apiserver | kube-controller | kube-scheduler) of=/etc/kubernetes/ ;;
      esac
      if [ -n "$of" ] && tr '\0' ' ' <"$p/cmdline" | grep -qF -e "$of"; then echo "$n"; fi
    fi
  done 2>/dev/null
  true
}

# starts tells whether the kubelet starts the control plane.
starts() { [ -e "$M/etcd.yaml" ] || [ -e "$M/kube-apiserver.yaml" ]; }

# halted tells whether nothing of the control plane runs, and no kubelet that would start it.
halted() { [ -z "$(pids)" ] && ! { starts && systemctl is-active -q kubelet; }; }

# halt ends it: first what writes, last etcd.
halt() {
  rm -f "$R"
  if starts; then systemctl stop kubelet; fi
  for u in kube-scheduler kube-controller-manager kube-apiserver etcd; do
    if systemctl is-active -q "$u"; then systemctl stop "$u"; fi
    if starts; then
      for c in $(crictl ps -q --name "^$u\$" --label io.kubernetes.pod.namespace=kube-system); do crictl stop -t 30 "$c" >/dev/null || true; done
    fi
  done
  i=0
  until halted; do
    i=$((i + 1))
    if [ $i -gt 300 ]; then echo "these do not end: $(pids | tr '\n' ' ')" >&2; return 1; fi
    sleep 0.2
  done
}

# restored tells whether the data is that of the restoration, for the member NAME among PEERS.
restored() { [ "$(cat "$D/restored" 2>/dev/null)" = "$ID $1 $2" ]; }

# room wants so many KiB free where the data is, and where it comes first.
room() {
  for d in "$D" "${R%/*}"; do
    mkdir -p "$d"
    free=$(df -Pk "$d" | { read -r _; read -r _ _ _ f _; echo "$f"; })
    if [ "$free" -lt "$1" ]; then echo "$d has $free KiB free, and $1 KiB are needed" >&2; return 28; fi
  done
}

# begin_anew puts the data of a snapshot in place of that of the member NAME among PEERS, which is at URL. What was there is kept beside it. It may be cut off anywhere, and is
# run with set -e: where a command fails, nothing after it is done.
begin_anew() { # NAME PEERS URL BUMP ETCDUTL SNAPSHOT
  if ! halted; then echo "it runs again: $(pids | tr '\n' ' ')" >&2; return 1; fi
  rm -rf "$D/restoring"
  "$5" snapshot restore "$6" --name "$1" --initial-cluster "$2" --initial-advertise-peer-urls "$3" --initial-cluster-token "kubexm-$ID" \
    --data-dir "$D/restoring" --bump-revision "$4" --mark-compacted >&2
  [ -d "$D/restoring/member" ]
  if [ -e "$D/member" ]; then
    if [ -e "$D/before-$ID" ]; then rm -rf "$D/member"; else mv "$D/member" "$D/before-$ID"; fi
  fi
  mv "$D/restoring/member" "$D/member"
  rm -rf "$D/restoring"
  sync
  echo "$ID $1 $2" >"$D/.restored"
  mv "$D/.restored" "$D/restored"
  sync
}

# resume starts what halt has ended; nothing waits here for what others must begin, too.
resume() {
  for u in etcd kube-apiserver kube-controller-manager kube-scheduler; do
    if systemctl is-enabled -q "$u" 2>/dev/null; then systemctl start --no-block "$u"; fi
  done
  if systemctl is-enabled -q kubelet 2>/dev/null; then systemctl restart --no-block kubelet; fi
  echo "$ID" >"$R"
}
resumed() { [ "$(cat "$R" 2>/dev/null)" = "$ID" ]; }
