# shellcheck shell=sh
# A member of etcd begins anew with a snapshot. Inputs: D is the directory of its data, ID names the restoration.

parts='etcd|kube-apiserver|kube-controller-manager|kube-scheduler'

# pods lists the containers of the control plane that run in static pods.
pods() { if command -v crictl >/dev/null; then crictl ps -q --name "^($parts)\$" --label io.kubernetes.pod.namespace=kube-system 2>/dev/null; fi; }
units() { for u in kube-scheduler kube-controller-manager kube-apiserver etcd; do if systemctl is-active -q "$u"; then echo "$u"; fi; done; }

# starts tells whether the kubelet starts the control plane, from the directory of its manifests.
starts() { [ -e "$1/etcd.yaml" ] || [ -e "$1/kube-apiserver.yaml" ]; }

# halted tells whether nothing of the control plane runs, and no kubelet that would start it.
halted() { [ -z "$(units)$(pods)" ] && ! { starts "$1" && systemctl is-active -q kubelet; }; }

# halt ends it: first what writes, last etcd.
halt() {
  if starts "$1"; then systemctl stop kubelet; fi
  for u in $(units); do systemctl stop "$u"; done
  for p in kube-scheduler kube-controller-manager kube-apiserver etcd; do
    for c in $(parts=$p; pods); do crictl stop -t 30 "$c" >/dev/null; done
  done
}

# restored tells whether the data is that of the restoration.
restored() { [ "$(cat "$D/restored" 2>/dev/null)" = "$ID" ]; }

# begin_anew puts the data of SNAPSHOT in place of the member NAME at URL among PEERS. What was there is kept beside it. After a power cut it can be run again.
begin_anew() { # ETCDUTL SNAPSHOT NAME URL PEERS
  mkdir -p "$D"
  rm -rf "$D/restoring"
  "$1" snapshot restore "$2" --name "$3" --initial-advertise-peer-urls "$4" --initial-cluster "$5" --initial-cluster-token "kubexm-$ID" \
    --data-dir "$D/restoring" --bump-revision 1000000000 --mark-compacted >&2
  if [ -e "$D/member" ]; then
    if [ -e "$D/before-$ID" ]; then rm -rf "$D/member"; else mv "$D/member" "$D/before-$ID"; fi
  fi
  mv "$D/restoring/member" "$D/member"
  rm -rf "$D/restoring"
  sync
  echo "$ID" >"$D/restored"
  sync
}

# resume starts what halt has ended; nothing waits here for what others must begin, too.
resume() {
  if systemctl is-enabled -q etcd 2>/dev/null; then systemctl start --no-block etcd; fi
  for u in kube-apiserver kube-controller-manager kube-scheduler; do
    if systemctl is-enabled -q "$u" 2>/dev/null; then systemctl start --no-block "$u"; fi
  done
  if systemctl is-enabled -q kubelet 2>/dev/null; then systemctl restart --no-block kubelet; fi
}
