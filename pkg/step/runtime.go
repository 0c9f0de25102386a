package step

import (
	"time"

	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource"
)

// BinDir is where kubexm puts programs.
const BinDir = "/usr/local/bin"

// CNIBinDir is where the container runtime finds CNI plugins.
const CNIBinDir = "/opt/cni/bin"

// TransferTimeout is for what brings much to a host.
const TransferTimeout = 30 * time.Minute

// RuntimePrograms puts the programs of a container runtime on a host, the CNI plugins among them.
func RuntimePrograms(store *resource.Store, all ...resource.Artifact) Step {
	u := Upload{What: "container runtime", Store: store}
	for _, a := range all {
		dir := BinDir
		if a.Component == plugin.CNIPlugins {
			dir = CNIBinDir
		}
		u.Programs = append(u.Programs, Programs{Artifact: a, Dir: dir})
	}
	return With(u, Options{Timeout: TransferTimeout, Limit: LimitTransfer})
}

// CrictlConfig tells crictl which container runtime there is.
func CrictlConfig(endpoint string) File {
	text := "# Made by kubexm.\nruntime-endpoint: " + endpoint + "\nimage-endpoint: " + endpoint + "\ntimeout: 30\n"
	return File{Path: "/etc/crictl.yaml", Content: Content(text), Mode: 0o644}
}
