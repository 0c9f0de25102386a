# shellcheck shell=sh
# Prints the virtual address that kube-vip has on a master, if it has it. Input: POD, its manifest.
vip=$(sed -n 's/.*name: address, value: "\(.*\)"}.*/\1/p' "$POD" 2>/dev/null)
[ -z "$vip" ] || ip -o addr show to "$vip"
