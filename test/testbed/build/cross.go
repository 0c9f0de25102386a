package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/kubexm/kubexm/test/testbed/host"
)

// Foreign returns builders like this one for the architectures that are not
// this machine's own.
func (b *Builder) Foreign() []*Builder {
	var others []*Builder
	for _, arch := range host.Archs() {
		if arch != runtime.GOARCH {
			others = append(others, b.On(arch))
		}
	}
	return others
}

// On returns a builder like this one for one of host.Archs.
func (b *Builder) On(arch string) *Builder {
	other := *b
	other.Arch = arch
	return &other
}

func (b *Builder) foreign() bool { return b.Arch != runtime.GOARCH }

// cross returns the environment in which the go command finds a C compiler for
// a foreign architecture, and libseccomp. Its packages are unpacked into the
// cache: dpkg of this machine keeps to the architectures that it has.
func (b *Builder) cross(ctx context.Context) ([]string, error) {
	release := cmp.Or(host.Codename(), "bookworm") // its libraries fit the compiler's
	dir := b.Cache.Path("base", "libseccomp-"+release+"-"+b.Arch)
	if _, err := os.Stat(dir); err != nil {
		tmp := dir + ".tmp"
		defer os.RemoveAll(tmp)
		err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o755)) // there is one after a build that was killed
		if err == nil {
			err = host.Bootstrap(ctx, release, tmp, "--variant=extract", "--architectures="+b.Arch, "--include=libseccomp-dev")
		}
		if err == nil {
			err = os.Rename(tmp, dir)
		}
		if err != nil {
			return nil, fmt.Errorf("unpacking libseccomp for %s: %w", b.Arch, err)
		}
	}
	triplet := host.Triplet(b.Arch)
	return []string{"CC=" + triplet + "-gcc", "PKG_CONFIG_SYSROOT_DIR=" + dir, "PKG_CONFIG_LIBDIR=" + dir + "/usr/lib/" + triplet + "/pkgconfig"}, nil
}
