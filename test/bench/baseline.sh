#!/usr/bin/env bash
# baseline.sh makes the cluster of the create benchmark by hand, as fast as a
# shell script can: one multiplexed SSH connection for each host, everything side
# by side that can be, and no wait but on the thing itself. It is written for fresh
# machines that are known to be fit: it checks nothing, verifies no checksum, cannot
# be run twice and undoes nothing.
#
#   ROW              1: kubeadm, etcd as a static pod; 2: plain binaries under systemd, one master; 4: as 1, several masters;
#                    join: only WORKER joins, a cluster of row 1 that runs; restore: row 1 again, from BACKUP
#   MASTERS, WORKER  addresses; the nodes' host names are node1, node2 and so on in this order
#   OTHERS           join: addresses of the workers that are there, between these two in that order
#   KEY, KNOWN       private key and known hosts for ssh, as root
#   FILES            prepared beforehand: runtime/ (a tree to copy), programs/ (binaries),
#                    images/*.tar (OCI archives), manifests/*.yaml
#   PAUSE, VERSION   image of pod sandboxes; version of Kubernetes
#   BACKUP           restore: what is in a backup of kubexm's, as a tar; ETCD_IMAGE has the tool for it
#   OUT              where the administrator's kubeconfig goes; join: where it is
set -Eeuo pipefail

T=$(mktemp -d)
MASTER=${MASTERS%% *}
declare -A NAME=() # of each address
for h in $MASTERS ${OTHERS:-} $WORKER; do NAME[$h]=node$((${#NAME[@]} + 1)); done
trap 'for h in "${!NAME[@]}"; do ssh -o ControlPath=$T/%h.ssh -O exit $h; done 2>/dev/null; rm -rf $T' EXIT
trap 'touch $T/failed' ERR # in jobs too
PODS=10.233.64.0/18 SERVICES=10.233.0.0/18 API=https://lb.kubexm.local:6443
PKI=/etc/kubernetes/pki TOKEN=abcdef.0123456789abcdef
DISCOVERY="bootstrapToken: {token: $TOKEN, apiServerEndpoint: 'lb.kubexm.local:6443', unsafeSkipCAVerification: true}"
KUBECTL="$FILES/programs/kubectl --kubeconfig=$OUT"

on() { # HOST COMMAND: as root, standard input passed on
  ssh -i "$KEY" -o UserKnownHostsFile="$KNOWN" -o IdentitiesOnly=yes -c aes128-gcm@openssh.com \
    -o ControlMaster=auto -o ControlPath="$T/%h.ssh" -o ControlPersist=60 "root@$1" "$2"
}
programs() { # HOST NAME...
  local host=$1; shift
  tar -C "$FILES/programs" --transform 's,^,usr/local/bin/,' -cf - "$@" | on "$host" 'tar -C / --no-overwrite-dir -xf -'
}
tree() { # HOST DIRECTORY [COMMAND]: copies what is below the directory, then runs the command
  tar -C "$2" -cf - . | on "$1" "tar -C / --no-overwrite-dir -xf -; ${3:-}"
}
images() { # HOST ARCHIVE
  on "$1" '/usr/local/bin/ctr -n k8s.io images import --digests=false - >/dev/null' <"$FILES/images/$2.tar"
}
all() { wait; [ ! -e "$T/failed" ]; } # waits for the jobs of this shell
reach() { touch "$T/$1"; }
await() { until [ -e "$T/$1" ]; do [ ! -e "$T/failed" ]; sleep 0.02; done; }

# ---- certificates and kubeconfigs, in $T/pki

ca() { # NAME
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "/CN=$1" \
    -addext keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign -keyout "$1.key" -out "$1.crt" 2>/dev/null
}
leaf() { # CA NAME SUBJECT [SAN]
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "$3" -CA "$1.crt" -CAkey "$1.key" \
    -addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=serverAuth,clientAuth ${4:+-addext "subjectAltName=$4"} \
    -keyout "$2.key" -out "$2.crt" 2>/dev/null
}
kubeconfig() { # NAME [SERVER]: of the certificate NAME
  cat <<END
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "${2:-$API}", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: u, user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
END
}

# ---- a node's operating system and container runtime

prepare() { # HOST
  local d=$T/$1
  mkdir -p "$d"/etc/{containerd,systemd/system,sysctl.d,modules-load.d}
  cat >"$d/etc/containerd/config.toml" <<END
version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "$PAUSE"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/opt/cni/bin"]
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "/usr/local/bin/runc"
  SystemdCgroup = true
END
  printf 'runtime-endpoint: unix:///run/containerd/containerd.sock\n' >"$d/etc/crictl.yaml"
  printf '%s\n' overlay br_netfilter >"$d/etc/modules-load.d/kubernetes.conf"
  printf '%s = %s\n' net.ipv4.ip_forward 1 net.bridge.bridge-nf-call-iptables 1 fs.inotify.max_user_instances 8192 vm.overcommit_memory 1 \
    vm.panic_on_oom 0 kernel.panic 10 kernel.panic_on_oops 1 kernel.keys.root_maxkeys 1000000 kernel.keys.root_maxbytes 25000000 \
    >"$d/etc/sysctl.d/99-kubernetes.conf"
  unit "$d" containerd notify /usr/local/bin/containerd
  tar -cf - -C "$d" etc -C "$FILES/runtime" . | on "$1" "tar -C / --no-overwrite-dir -xf -
swapoff -a; modprobe -qa overlay br_netfilter; sysctl -q -p /etc/sysctl.d/99-kubernetes.conf 2>/dev/null
printf '%s\n' $(for h in "${!NAME[@]}"; do printf "'%s' " "$h ${NAME[$h]}"; done) '$MASTER lb.kubexm.local' >>/etc/hosts
systemctl -q enable --now containerd"
}
unit() { # DIRECTORY NAME TYPE COMMAND [LINE...]
  local dir=$1 name=$2 type=$3 command=$4; shift 4
  { printf '%s\n' '[Service]' "Type=$type" "ExecStart=$command" Restart=always RestartSec=1 Delegate=yes KillMode=process TasksMax=infinity "$@" \
    '[Install]' WantedBy=multi-user.target; } >"$dir/etc/systemd/system/$name.service"
}
kubelet_config() { # MORE LINES
  cat <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $PKI/ca.crt}}
authorization: {mode: Webhook}
cgroupDriver: systemd
clusterDNS: [10.233.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
evictionHard: {memory.available: 100Mi, nodefs.available: 500Mi, nodefs.inodesFree: 1%, imagefs.available: 500Mi}
failCgroupV1: false
oomScoreAdj: 0
staticPodPath: /etc/kubernetes/manifests
END
  printf '%s\n' "$@"
}
proxy_config() {
  cat <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: $PODS
conntrack: {maxPerCore: 0, min: 0}
oomScoreAdj: 0
clientConnection: {kubeconfig: /var/lib/kube-proxy/kubeconfig.conf}
END
}

# ---- what is the same in all rows once the API server answers

addons() { $KUBECTL create --validate=false -f "$FILES/manifests/flannel.yaml" -f "$FILES/manifests/coredns.yaml" >/dev/null; }
ready() { # NODE...
  until $KUBECTL get node "$@" >/dev/null 2>&1; do sleep 0.1; done
  $KUBECTL label node "${NAME[$WORKER]}" node-role.kubernetes.io/worker= >/dev/null &
  $KUBECTL wait --timeout=300s --for=condition=Ready "${@/#/node/}" >/dev/null &
  $KUBECTL rollout status --timeout=300s -n kube-flannel daemonset/kube-flannel-ds >/dev/null &
  $KUBECTL rollout status --timeout=300s -n kube-system deployment/coredns >/dev/null &
  all
}

# ---- rows 1 and 4: kubeadm

row4() { row1; }
row1() {
  (cd "$T"; ca ca; leaf ca admin /O=system:masters/CN=kubernetes-admin; kubeconfig admin "https://$MASTER:6443" >"$OUT")
  local h before=
  for h in $MASTERS; do kubeadm_master "$h" "$before" & before=${NAME[$h]}; done
  kubeadm_worker &
  await node1
  addons
  ready "${NAME[@]}"
}
kubeadm_node() { # HOST IMAGES PROGRAM...: everything before kubeadm runs
  local host=$1 set=$2; shift 2
  prepare "$host"
  images "$host" "$set" &
  programs "$host" kubelet kubeadm "$@" &
  on "$host" "mkdir -p $PKI; cat >/etc/systemd/system/kubelet.service; systemctl -q enable kubelet" <<'END' &
[Service]
ExecStart=/usr/local/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
Restart=always
RestartSec=1
Delegate=yes
KillMode=process
TasksMax=infinity
[Install]
WantedBy=multi-user.target
END
  all
}
kubeadm_master() { # HOST [MARK]: the first one, or one that joins when the mark is reached
  kubeadm_node "$1" control kubectl
  images "$1" node &
  if [ -n "$2" ]; then
    await "$2"
    on "$1" 'tar -C / --no-overwrite-dir -xf -' <"$T/pki.tar"
    kubeadm_join "$1" master "controlPlane: {localAPIEndpoint: {advertiseAddress: $1, bindPort: 6443}}"
  else
    tar -C "$T" --transform "s,^,${PKI#/}/," -cf - ca.crt ca.key | on "$1" 'tar -C / --no-overwrite-dir -xf -'
    kubeadm_init "$1"
    on "$1" "tar -C / -cf - ${PKI#/}/{ca,front-proxy-ca,etcd/ca}.{crt,key} ${PKI#/}/sa.{pub,key}" >"$T/pki.tar"
  fi
  reach "${NAME[$1]}"
  all
}
kubeadm_init() { # HOST
  {
    cat <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{token: $TOKEN, ttl: 15m0s}]
localAPIEndpoint: {advertiseAddress: $1, bindPort: 6443}
$(registration "$1" master)
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: $VERSION
controlPlaneEndpoint: lb.kubexm.local:6443
networking: {dnsDomain: cluster.local, podSubnet: $PODS, serviceSubnet: $SERVICES}
etcd: {local: {dataDir: /var/lib/etcd, imageTag: $ETCD}}
apiServer: {certSANs: [lb.kubexm.local, $1]}
controllerManager: {extraArgs: [{name: node-cidr-mask-size, value: "24"}]}
---
END
    kubelet_config
    echo ---
    proxy_config
  } | on "$1" 'cat >/etc/kubernetes/init.yaml
/usr/local/bin/kubeadm init --skip-phases=preflight,addon/coredns,show-join-command --config /etc/kubernetes/init.yaml >/dev/null'
}
kubeadm_worker() {
  kubeadm_node "$WORKER" worker
  await node1
  kubeadm_join "$WORKER" worker
}
kubeadm_join() { # HOST ROLE [LINE]
  on "$1" "cat >/etc/kubernetes/join.yaml; /usr/local/bin/kubeadm join --skip-phases=preflight --config /etc/kubernetes/join.yaml >/dev/null" <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {$DISCOVERY}
$(registration "$1" "$2")
${3:-}
END
}
registration() { # HOST ROLE
  local taints=
  [ "$2" = worker ] || taints='{effect: NoSchedule, key: node-role.kubernetes.io/control-plane}'
  cat <<END
nodeRegistration:
  name: ${NAME[$1]}
  criSocket: unix:///run/containerd/containerd.sock
  imagePullPolicy: IfNotPresent
  kubeletExtraArgs: [{name: node-ip, value: $1}]
  taints: [$taints]
END
}

# ---- join: a worker more, with the administrator's credentials, as kubexm's clusters know no bootstrap tokens; its kubelet has the serving
# certificate that it signs itself

rowjoin() {
  DISCOVERY='file: {kubeConfigPath: /etc/kubernetes/discovery.conf}'
  kubeadm_node "$WORKER" worker &
  on "$WORKER" 'mkdir -p /etc/kubernetes; cat >/etc/kubernetes/discovery.conf' <"$OUT" &
  local h
  for h in $MASTERS $OTHERS; do on "$h" "printf '%s\n' '$WORKER ${NAME[$WORKER]}' >>/etc/hosts" & done
  all
  kubeadm_join "$WORKER" worker
  ready "${NAME[$WORKER]}"
}

# ---- restore: row 1 on other machines, with the data and the keys of a backup. What nodes and pods were on the old machines is removed

rowrestore() {
  local pki=$T/keys$PKI certs=$T/backup/certs
  mkdir -p "$T/backup" "$pki/etcd"
  tar -C "$T/backup" -xf "$BACKUP"
  cp "$certs"/kubernetes/{ca.crt,ca.key,sa.key} "$pki"
  openssl pkey -in "$pki/sa.key" -pubout -out "$pki/sa.pub"
  cp "$certs"/etcd/ca.{crt,key} "$pki/etcd"
  for end in crt key; do cp "$certs/front-proxy/ca.$end" "$pki/front-proxy-ca.$end"; done
  (cd "$T"; cp "$pki"/ca.{crt,key} .; leaf ca admin /O=system:masters/CN=kubernetes-admin; kubeconfig admin "https://$MASTER:6443" >"$OUT")
  restored_master &
  kubeadm_worker &
  await node1
  ready "${NAME[@]}"
}
restored_master() {
  kubeadm_node "$MASTER" control kubectl
  images "$MASTER" node &
  tree "$MASTER" "$T/keys"
  on "$MASTER" "cat >/var/lib/etcd.db
/usr/local/bin/ctr -n k8s.io run --rm --mount type=bind,src=/var/lib,dst=/var/lib,options=rbind:rw $ETCD_IMAGE restore \
/usr/local/bin/etcdutl snapshot restore /var/lib/etcd.db --data-dir /var/lib/etcd --name node1 --initial-cluster node1=https://$MASTER:2380 \
--initial-advertise-peer-urls https://$MASTER:2380 --bump-revision 1000000000 --mark-compacted >/dev/null; rm /var/lib/etcd.db" <"$T/backup/etcd.db"
  kubeadm_init "$MASTER"
  $KUBECTL delete node "${NAME[$WORKER]}" >/dev/null
  $KUBECTL delete pods --all-namespaces --all --force --grace-period=0 >/dev/null 2>&1
  reach node1
  all
}

# ---- row 2: plain binaries

row2() {
  (cd "$T"; certificates; reach certificates) &
  binary_control &
  binary_node "$MASTER" node1 kube-controller-manager kube-scheduler kubectl &
  binary_node "$WORKER" node2 &
  await certificates
  (cd "$T"; kubeconfig admin "https://$MASTER:6443" >"$OUT")
  until $KUBECTL get --raw /readyz >/dev/null 2>&1; do sleep 0.1; done
  reach api
  $KUBECTL create --validate=false -f "$FILES/manifests/rbac.yaml" >/dev/null &
  addons
  ready "${NAME[@]}"
}
certificates() {
  ca ca & ca etcd-ca & ca front-proxy-ca &
  openssl genrsa -out sa.key 2048 2>/dev/null && openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null &
  all
  leaf etcd-ca etcd-server /CN=node1 "DNS:node1,DNS:localhost,IP:127.0.0.1,IP:$MASTER" &
  leaf etcd-ca etcd-client /CN=kube-apiserver &
  leaf ca apiserver /CN=kube-apiserver "DNS:node1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:lb.kubexm.local,IP:127.0.0.1,IP:$MASTER,IP:10.233.0.1" &
  leaf ca apiserver-kubelet-client /CN=kube-apiserver-kubelet-client &
  leaf front-proxy-ca front-proxy-client /CN=front-proxy-client &
  leaf ca admin /O=system:masters/CN=kubernetes-admin &
  leaf ca controller-manager /CN=system:kube-controller-manager &
  leaf ca scheduler /CN=system:kube-scheduler &
  leaf ca kube-proxy /CN=system:kube-proxy &
  leaf ca node1 /O=system:nodes/CN=system:node:node1 "DNS:node1,IP:$MASTER" &
  leaf ca node2 /O=system:nodes/CN=system:node:node2 "DNS:node2,IP:$WORKER" &
  all
}
binary_control() { # etcd, the API server and what works for it
  programs "$MASTER" etcd etcdctl etcdutl kube-apiserver &
  await certificates
  local d=$T/control conf=/etc/kubernetes name
  mkdir -p "$d$PKI" "$d/etc/systemd/system"
  (cd "$T"; cp ./*.crt ./*.key sa.pub "$d$PKI"; for name in controller-manager scheduler; do kubeconfig $name >"$d$conf/$name.conf"; done)
  unit "$d" etcd notify "/usr/local/bin/etcd --name=node1 --data-dir=/var/lib/etcd --listen-client-urls=https://$MASTER:2379,https://127.0.0.1:2379 \
--advertise-client-urls=https://$MASTER:2379 --listen-peer-urls=https://$MASTER:2380 --initial-advertise-peer-urls=https://$MASTER:2380 \
--initial-cluster=node1=https://$MASTER:2380 --client-cert-auth=true --trusted-ca-file=$PKI/etcd-ca.crt --cert-file=$PKI/etcd-server.crt \
--key-file=$PKI/etcd-server.key --peer-client-cert-auth=true --peer-trusted-ca-file=$PKI/etcd-ca.crt --peer-cert-file=$PKI/etcd-server.crt \
--peer-key-file=$PKI/etcd-server.key --snapshot-count=10000 --auto-compaction-retention=8 --quota-backend-bytes=8589934592"
  unit "$d" kube-apiserver notify "/usr/local/bin/kube-apiserver --advertise-address=$MASTER --secure-port=6443 --allow-privileged=true \
--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --enable-bootstrap-token-auth=true --client-ca-file=$PKI/ca.crt \
--tls-cert-file=$PKI/apiserver.crt --tls-private-key-file=$PKI/apiserver.key --etcd-servers=https://$MASTER:2379 --etcd-cafile=$PKI/etcd-ca.crt \
--etcd-certfile=$PKI/etcd-client.crt --etcd-keyfile=$PKI/etcd-client.key --kubelet-certificate-authority=$PKI/ca.crt \
--kubelet-client-certificate=$PKI/apiserver-kubelet-client.crt --kubelet-client-key=$PKI/apiserver-kubelet-client.key \
--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname --proxy-client-cert-file=$PKI/front-proxy-client.crt \
--proxy-client-key-file=$PKI/front-proxy-client.key --requestheader-client-ca-file=$PKI/front-proxy-ca.crt \
--requestheader-allowed-names=front-proxy-client --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group \
--requestheader-username-headers=X-Remote-User --service-account-issuer=https://kubernetes.default.svc.cluster.local \
--service-account-key-file=$PKI/sa.pub --service-account-signing-key-file=$PKI/sa.key --service-cluster-ip-range=$SERVICES"
  local as="--kubeconfig=$conf/NAME.conf --authentication-kubeconfig=$conf/NAME.conf --authorization-kubeconfig=$conf/NAME.conf --bind-address=127.0.0.1 --leader-elect=true"
  unit "$d" kube-controller-manager simple "/usr/local/bin/kube-controller-manager ${as//NAME/controller-manager} --allocate-node-cidrs=true \
--cluster-cidr=$PODS --node-cidr-mask-size=24 --service-cluster-ip-range=$SERVICES --client-ca-file=$PKI/ca.crt --root-ca-file=$PKI/ca.crt \
--requestheader-client-ca-file=$PKI/front-proxy-ca.crt --cluster-signing-cert-file=$PKI/ca.crt --cluster-signing-key-file=$PKI/ca.key \
--service-account-private-key-file=$PKI/sa.key --use-service-account-credentials=true --controllers=*,bootstrapsigner,tokencleaner"
  unit "$d" kube-scheduler simple "/usr/local/bin/kube-scheduler ${as//NAME/scheduler}"
  tree "$MASTER" "$d" "mkdir -pm700 /var/lib/etcd"
  all # the programs are there
  on "$MASTER" "printf '%s\n' '$MASTER lb.kubexm.local' >>/etc/hosts; systemctl -q enable --now etcd kube-apiserver"
  await controllers
  on "$MASTER" "systemctl -q enable --now kube-controller-manager kube-scheduler"
}
binary_node() { # HOST NAME PROGRAM...: what runs pods
  local host=$1 name=$2 d=$T/$2; shift 2
  prepare "$host"
  images "$host" node &
  programs "$host" kubelet kube-proxy "$@"
  await certificates
  mkdir -p "$d$PKI" "$d"/etc/{kubernetes/manifests,systemd/system} "$d"/var/lib/{kubelet,kube-proxy}
  (cd "$T"; cp ca.crt "$name.crt" "$name.key" "$d$PKI"; kubeconfig "$name" >"$d/etc/kubernetes/kubelet.conf"; kubeconfig kube-proxy >"$d/var/lib/kube-proxy/kubeconfig.conf")
  { kubelet_config; echo "tlsCertFile: $PKI/$name.crt"; echo "tlsPrivateKeyFile: $PKI/$name.key"
    [ "$name" = node2 ] || echo 'registerWithTaints: [{effect: NoSchedule, key: node-role.kubernetes.io/control-plane}]'; } >"$d/var/lib/kubelet/config.yaml"
  { proxy_config; echo "hostnameOverride: $name"; } >"$d/var/lib/kube-proxy/config.yaml"
  unit "$d" kubelet simple "/usr/local/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml --hostname-override=$name --node-ip=$host"
  unit "$d" kube-proxy simple "/usr/local/bin/kube-proxy --config=/var/lib/kube-proxy/config.yaml"
  tree "$host" "$d"
  [ "$name" = node2 ] || reach controllers
  await api
  on "$host" "systemctl -q enable --now kubelet kube-proxy"
  all
}

for h in "${!NAME[@]}"; do on "$h" true & done # one connection each, for all that follows
all
"row$ROW"
