package testbed

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/test/testbed/host"
)

// packages are what a node starts with: what Debian's cloud images have, and
// the programs Kubernetes expects. bash-completion, ipvsadm and chrony are
// left out on purpose: installing packages is to be tested.
var packages = strings.Fields(`
	systemd systemd-sysv libpam-systemd dbus openssh-server sudo
	iproute2 iputils-ping iptables nftables conntrack ebtables ipset ethtool socat netbase
	kmod procps util-linux mount e2fsprogs tar gzip xz-utils zstd
	ca-certificates curl openssl less logrotate tzdata`)

// codenames are the systems a node can have.
var codenames = map[string]string{"debian12": "bookworm", "debian13": "trixie"}

//go:embed scripts/base.sh
var baseScript string

// base returns the root file system that all nodes of that system share,
// and makes it first when it is not there.
func (t *Testbed) base(ctx context.Context, system string) (string, error) {
	codename := codenames[system]
	if codename == "" {
		return "", fmt.Errorf("no such system %q: want debian12 or debian13", system)
	}
	key := sha256.Sum256([]byte(strings.Join(append(slices.Clone(packages), baseScript, Password), "\n")))
	dir := t.Cache.Path("base", fmt.Sprintf("%s-%x", system, key[:6]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	unlock, err := t.Cache.Lock(ctx, "base-"+system)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, t.makeBase(ctx, dir, codename)
}

func (t *Testbed) makeBase(ctx context.Context, dir, codename string) error {
	start := time.Now()
	t.logf("base %s: making it (about a minute)", filepath.Base(dir))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("making the base: %w", err)
	}
	halves := filepath.Join(filepath.Dir(dir), "tmp-"+codename+"-")
	if err := removeAll(halves + "*"); err != nil {
		return fmt.Errorf("making the base: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(halves), filepath.Base(halves))
	if err != nil {
		return fmt.Errorf("making the base: %w", err)
	}
	defer os.RemoveAll(tmp)
	script, root := filepath.Join(tmp, "base.sh"), filepath.Join(tmp, "root")
	if err := os.WriteFile(script, []byte(baseScript), 0o755); err != nil {
		return fmt.Errorf("making the base: %w", err)
	}
	err = host.Bootstrap(ctx, codename, root, "--variant=minbase", "--include="+strings.Join(packages, ","),
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*", "--customize-hook=PASSWORD="+Password+" "+script+` "$1"`)
	if err == nil {
		err = os.Rename(root, dir)
	}
	if err != nil {
		return fmt.Errorf("making the base: %w", err)
	}
	t.logf("base %s: made in %d s", filepath.Base(dir), int(time.Since(start).Seconds()))
	return nil
}

// removeAll removes what processes that were killed have left unfinished.
func removeAll(pattern string) error {
	paths, err := filepath.Glob(pattern)
	for _, p := range paths {
		err = errors.Join(err, os.RemoveAll(p))
	}
	return err
}
