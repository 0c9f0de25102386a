# shellcheck shell=sh
# The virtual address that kube-vip has on a master. Input: POD, its manifest.
vip=$(sed -n 's/.*name: address, value: "\(.*\)"}.*/\1/p' "$POD" 2>/dev/null)
held() { [ -n "$vip" ] && [ -n "$(ip -o addr show to "$vip" 2>/dev/null)" ]; }

# hand_over has kube-vip give up its lease, which it does as it ends. The kubelet starts it again at once, and it may have the
# lease before others notice; so it is ended once more, after which the kubelet waits ten seconds.
hand_over() {
  for _ in 1 2; do
    i=0
    until ids=$(crictl ps -q --name '^kube-vip$'); [ -n "$ids" ] || [ $i = 20 ]; do i=$((i+1)); sleep 0.2; done
    for id in $ids; do crictl stop --timeout 5 "$id" >/dev/null; done
  done
  i=0
  while held && [ $i -lt 20 ]; do i=$((i+1)); sleep 0.2; done
}
