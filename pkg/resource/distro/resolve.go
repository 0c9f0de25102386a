package distro

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// File is the file of a package as its distribution publishes it.
type File struct {
	Name   string `json:"name"`
	URL    string `json:"url"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// Exit statuses of the scripts that resolve packages.
const (
	noTool = 71
	noKeys = 72
)

// Resolve finds out which files the packages of some names are in, with those of all that they depend on, as a
// machine needs them that has nothing yet. The distribution's own tool is asked on a machine that has it, here, with the
// index at sources (those of Sources, or mirrors of them), whose signature the tool checks where it is Signed: it runs without
// root, and leaves nothing behind. Where the machine lacks the tool or its keys the error advises what to install.
func (s System) Resolve(ctx context.Context, here *runner.Runner, arch string, names, sources []string) ([]File, error) {
	if s.Manager == "apt" {
		return s.resolveDebs(ctx, here, arch, names, sources)
	}
	return s.resolveRPMs(ctx, here, arch, names, sources)
}

// toolError says what to install where the tool that resolves is not there, or has no keys.
func toolError(err error, tool, packages string, keys keyring) error {
	exit, ok := errors.AsType[*connector.ExitError](err)
	switch {
	case ok && exit.Code == noTool:
		return fault.Advise(fmt.Errorf("this machine has no %s, which knows what packages depend on", tool), "install "+packages+" on this machine")
	case ok && exit.Code == noKeys:
		return fault.Advise(fmt.Errorf("this machine has no %s, the keys that sign the index", keys.file), "install the package "+keys.packages+" on this machine")
	case ok:
		err = fmt.Errorf("%s: %s", tool, exit.Stderr)
	}
	return fault.Advise(err, "look at the network of this machine and its proxy (also that of apt or dnf), at spec.source (zone, mirrors), and at the names in spec.system")
}
