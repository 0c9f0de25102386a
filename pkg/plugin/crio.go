package plugin

import (
	"cmp"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// crio is CRI-O by upstream's static archive, with a data directory of its own: podman, which has the one that is CRI-O's by default, may be there, too.
//
// Facts: https://github.com/cri-o/packaging (what is in the archive), https://github.com/cri-o/cri-o/blob/main/docs/crio.conf.5.md
var crio = Runtime{
	Plugin: Plugin{
		Name: "cri-o", Unit: "crio",
		Parts: []Component{
			{
				Name: "cri-o", Version: "v1.36.3",
				Base:     "https://storage.googleapis.com/cri-o/artifacts/",
				File:     "cri-o.{arch}.v{version}.tar.gz",
				Sums:     "{file}.sha256sum",
				Programs: []string{"cri-o/bin/crio", "cri-o/bin/conmon", "cri-o/bin/pinns"},
			},
			runc, crictl, cniPlugins,
		},
		Version: runtimeVersion("cri-o"),
		Gates:   []Gate{{Least: "v1.34.0", Why: "CRI-O must be 1.34 or newer"}}, // older ones have no support, nor has an older Kubernetes
		Default: func(s *v1alpha1.Spec) { s.Runtime.DataRoot = cmp.Or(s.Runtime.DataRoot, "/var/lib/crio/storage") },
		Left: Left{
			Mounts: []string{"/run/crio/*", "/run/netns/????????-????-????-????-????????????", "/run/ipcns/*", "/run/utsns/*", "/run/userns/*", "/run/pidns/*"},
			Chains: []string{"CRIO-"},
			Tables: []string{"crio-hostports"},
			// The cache tells where layers were seen; podman makes its own again.
			Paths: []string{"/run/crio", "/run/nri", "/run/ipcns", "/run/utsns", "/run/userns", "/run/pidns", "/var/lib/crio", "/var/log/crio", "/var/lib/containers/cache", "/etc/crio/registries.conf.d/kubexm.store.conf"},
			Empty: []string{"/var/lib/containers", "/etc/crio/auth/in-use", "/etc/crio/auth", "/etc/crio/policies", "/etc/crio/registries.conf.d", "/etc/crio"},
		},
	},
	Socket: "/run/crio/crio.sock",
	Config: "/etc/crio/crio.conf.d/10-kubexm.conf", Mark: "storage.lock",
	Pulls:  true,
	Ends:   true, // https://github.com/cri-o/cri-o/blob/main/internal/version/version.go, ShouldCrioWipe
	Images: `crictl images -o json | sed -n 's/^ *"\(.*:[^@]*\)",*$/\1/p'`,
	Run: `run_image() {
  d=$(mktemp -d); i=$1 n=$2 all='"security_context": {"privileged": true, "namespace_options": {"network": 2}}'; shift 2
  printf '{"metadata": {"name": "%s", "namespace": "kube-system", "uid": "%s"}, "linux": {"cgroup_parent": "kubepods.slice", %s}}' "$n" "$n" "$all" >$d/pod
  printf '{"metadata": {"name": "%s"}, "image": {"image": "%s"}, "linux": {%s}, "command": [' "$n" "$i" "$all" >$d/container
  s=; for a; do printf '%s"%s"' "$s" "$a"; s=', '; done >>$d/container; echo ']}' >>$d/container
  if c=$(crictl run --no-pull $d/container $d/pod); then while [ -n "$(crictl ps -q --id "$c")" ]; do sleep 0.2; done; crictl logs "$c"; fi
  rm -rf $d; crictl rmp -fa
}`,
}
