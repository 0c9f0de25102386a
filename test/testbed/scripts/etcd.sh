# Runs an etcd that serves $URL: runs on the node, as root, with a tar of the program and its certificates as input.
set -e
dir=/var/external-etcd # outside of what snapshots look at: it holds what clusters store
systemctl stop external-etcd 2> /dev/null || true
rm -rf $dir
mkdir -m 700 $dir
tar -x --no-same-owner -C $dir
cat > /etc/systemd/system/external-etcd.service << END
[Unit]
Description=etcd of somebody else
After=network-online.target
[Service]
Type=notify
ExecStart=$dir/etcd --name external --data-dir $dir/data --listen-client-urls $URL --advertise-client-urls $URL \
  --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster external=http://127.0.0.1:2380 \
  --client-cert-auth --trusted-ca-file $dir/ca.crt --cert-file $dir/member.crt --key-file $dir/member.key
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable -q --now external-etcd
