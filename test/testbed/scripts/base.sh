#!/bin/sh
# Finishes the root file system of a node; $1 is its root, run by mmdebstrap
# as a customize hook. PASSWORD comes with the call.
set -eu
inside() { chroot "$ROOT" "$@"; }
ROOT=$1

for u in kube nopass; do inside useradd --create-home --shell /bin/bash --groups sudo "$u"; done
echo "root:$PASSWORD" | inside chpasswd
echo "kube:$PASSWORD" | inside chpasswd
echo "nopass ALL=(ALL) NOPASSWD: ALL" > "$ROOT/etc/sudoers.d/nopass"
chmod 0440 "$ROOT/etc/sudoers.d/nopass"
for h in root home/kube home/nopass; do mkdir -p -m 0700 "$ROOT/$h/.ssh"; done
inside chown kube:kube /home/kube/.ssh
inside chown nopass:nopass /home/nopass/.ssh

cat > "$ROOT/etc/ssh/sshd_config.d/testbed.conf" <<'EOF'
PermitRootLogin yes
PasswordAuthentication yes
UseDNS no
EOF
# On cgroup v1 nobody tells that a user's service manager has ended: the next login would wait 90 s for it.
mkdir -p "$ROOT/etc/systemd/logind.conf.d"
printf '[Login]\nUserStopDelaySec=infinity\n' > "$ROOT/etc/systemd/logind.conf.d/testbed.conf"
rm -f "$ROOT"/etc/ssh/ssh_host_*
inside systemctl enable ssh.service

# A container manager leaves cgroup v1 controllers read-only: the kubelet writes to them. systemd mounts no bpffs in a container. And
# each node needs a hardware identity of its own, where the machine below has one to show.
cat > "$ROOT/etc/systemd/system/machine.service" <<'EOF'
[Unit]
Description=Turn a container into a machine
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'for d in /sys/fs/cgroup/*; do mountpoint -q $d && mount -o remount,bind,rw $d; done; true'
ExecStart=mount -t bpf bpf /sys/fs/bpf
ExecStart=-/bin/sh -c 'id=/sys/class/dmi/id/product_uuid; test -e $id || exit 0; \
	sed -E "s/(.{8})(.{4})(.{4})(.{4})/\\1-\\2-\\3-\\4-/" /etc/machine-id > /run/product_uuid && mount --bind /run/product_uuid $id'
[Install]
WantedBy=sysinit.target
EOF
inside systemctl enable machine.service
# Nodes see the devices and the clock of the machine below: not theirs to manage.
mkdir -p "$ROOT/etc/systemd/system/chrony.service.d"
cat > "$ROOT/etc/systemd/system/chrony.service.d/testbed.conf" <<'EOF'
[Unit]
ConditionCapability=
[Service]
ExecStart=
ExecStart=/usr/sbin/chronyd -x $DAEMON_OPTS
EOF
# CRI-O and Docker give privileged containers all capabilities that the kernel has, and low scores for the killer of processes; this machine has
# neither CAP_SYS_RESOURCE, which the latter takes, nor CAP_SYS_TIME.
mkdir -p "$ROOT/etc/crio/crio.conf.d"
cat > "$ROOT/etc/crio/crio.conf.d/99-testbed.conf" <<'EOF'
[crio.runtime.runtimes.runc]
runtime_path = "/usr/local/sbin/runc-here"
runtime_root = "/run/crio/runc"
monitor_path = "/usr/local/bin/conmon"
monitor_cgroup = "pod"
EOF
cat > "$ROOT/usr/local/sbin/runc-here" <<'EOF'
#!/bin/sh
p='' f=''
for a; do case $p in --bundle|-b) f=$a/config.json;; --process|-p) f=$a;; esac; p=$a; done
[ -z "$f" ] || sed -Ei 's/"oomScoreAdj": *-[0-9]+/"oomScoreAdj":0/; s/"CAP_SYS_(RESOURCE|TIME)",?//g; s/,\]/]/g' "$f"
exec /usr/local/bin/runc "$@"
EOF
chmod 0755 "$ROOT/usr/local/sbin/runc-here"
mkdir -p "$ROOT/usr/local/lib/testbed" "$ROOT/etc/systemd/system/docker.service.d"
ln -s /usr/local/sbin/runc-here "$ROOT/usr/local/lib/testbed/runc"
printf '[Service]\nEnvironment=PATH=/usr/local/lib/testbed:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n' > "$ROOT/etc/systemd/system/docker.service.d/testbed.conf"
inside systemctl mask systemd-udevd.service systemd-udev-trigger.service systemd-udev-settle.service \
	systemd-udevd-kernel.socket systemd-udevd-control.socket console-getty.service

: > "$ROOT/etc/machine-id"
rm -f "$ROOT/etc/resolv.conf" "$ROOT/etc/hostname" "$ROOT/var/lib/dbus/machine-id"
