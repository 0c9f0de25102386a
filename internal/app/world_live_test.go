package app_test

import "strings"

// live gives hosts what running pods, the network plugin and kube-proxy make.
func (w *world) live() {
	for name, h := range w.hosts {
		if !w.kubelets[name] {
			continue
		}
		h.AddPod("pod")
		mounts := map[string]string{
			"/run/containerd/io.containerd.grpc.v1.cri/sandboxes/pod/shm": "tmpfs", "/run/containerd/io.containerd.runtime.v2.task/k8s.io/pod/rootfs": "overlay", "/run/netns/cni-pod": "nsfs",
		}
		if _, is := h.Get("/usr/local/bin/crio"); is {
			mounts = map[string]string{
				"/run/crio/storage/overlay-containers/pod/userdata/shm": "tmpfs", "/var/lib/crio/storage/overlay": "overlay",
				"/run/netns/0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0": "nsfs", "/run/utsns/0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0": "nsfs",
			}
			h.Put("/etc/crio/auth/in-use/x", "", 0o600)
			h.Remove("/etc/crio/auth/in-use/x") // the directory stays
		}
		if _, is := h.Get("/usr/local/bin/dockerd"); is {
			mounts = map[string]string{
				"/var/lib/docker/containers/pod/mounts/shm": "tmpfs", "/var/lib/docker/rootfs/overlayfs/pod": "overlay", "/run/docker/netns/default": "nsfs",
			}
			h.Put("/run/containerd/s/0f1e2d3c", "", 0o600)
		}
		mounts["/var/lib/kubelet/pods/pod/volumes/kubernetes.io~projected/token"] = "tmpfs"
		for at, kind := range mounts {
			h.Put(at+map[bool]string{false: "/x"}[kind == "nsfs"], "", 0o600) // a namespace is kept by a file
			h.Mount(kind, at, kind)
		}
		for _, file := range []string{
			"/run/flannel/subnet.env", "/etc/cni/net.d/10-flannel.conflist", "/opt/cni/bin/flannel", "/var/lib/cni/networks/cbr0/lock",
			"/var/lib/calico/nodename", "/var/log/calico/cni/cni.log", "/etc/cni/net.d/10-calico.conflist", "/opt/cni/bin/calico-ipam",
			"/run/cilium/state/endpoint", "/etc/cni/net.d/05-cilium.conflist", "/opt/cni/bin/cilium-cni", "/sys/fs/bpf/cilium/endpoint", "/sys/fs/bpf/tc/globals/cilium_lxc",
			"/var/log/pods/pod/container/0.log", "/var/log/containers/pod.log", "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/pod",
		} {
			h.Put(file, "x", 0o644)
		}
		h.Remove("/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/pod") // the directory stays
		if strings.Contains(w.at(name), ":") {
			h.SetAddr("cni0", "fd69:10:233::1/64")
			h.SetAddr("flannel-v6.1", "fd69:10:233::/128")
		} else {
			h.SetAddr("cni0", "10.233.64.1/24")
			h.SetAddr("flannel.1", "10.233.64.0/32")
		}
		for _, six := range []string{"", "6"} {
			h.AddRules("ip"+six+" kube-proxy", "chain services {", "}")
			h.AddRules("ip"+six+"tables", "-A FORWARD -j FLANNEL-FWD", "-A KUBE-FIREWALL -j DROP")
		}
	}
}
