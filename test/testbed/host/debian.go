package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Bootstrap makes a Debian file system with mmdebstrap, from the package
// sources this machine uses and reached the same way. The target's form (a
// directory or a tar archive) is mmdebstrap's matter, as are args.
func Bootstrap(ctx context.Context, codename, target string, args ...string) error {
	options, err := aptOptions(ctx)
	if err != nil {
		return err
	}
	sources, form := aptSources(codename)
	dir, err := os.MkdirTemp("", "testbed-")
	if err != nil {
		return fmt.Errorf("writing package sources: %w", err)
	}
	defer os.RemoveAll(dir)
	list := filepath.Join(dir, "debian"+form)
	if err := os.WriteFile(list, []byte(sources), 0o644); err != nil {
		return fmt.Errorf("writing package sources: %w", err)
	}
	line := append([]string{"--quiet", "--mode=root", "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg"}, args...)
	for _, o := range options {
		line = append(line, "--aptopt="+o)
	}
	_, err = Run(ctx, "mmdebstrap", append(line, codename, target, list)...)
	return err
}

const debianSources = `deb http://deb.debian.org/debian CODENAME main
deb http://deb.debian.org/debian CODENAME-updates main
deb http://deb.debian.org/debian-security CODENAME-security main
`

var codenameLine = regexp.MustCompile(`(?m)^VERSION_CODENAME=(\w+)$`)

// Codename is the release of Debian that this machine runs; empty when it runs another system.
func Codename() string {
	release, _ := os.ReadFile("/etc/os-release")
	if own := codenameLine.FindSubmatch(release); own != nil && strings.Contains(string(release), "\nID=debian\n") {
		return string(own[1])
	}
	return ""
}

// aptSources returns the package sources of this machine, for another release
// of Debian, and the extension that tells apt their form.
func aptSources(codename string) (sources, form string) {
	if own := Codename(); own != "" {
		for _, path := range []string{"/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"} {
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), own) {
				return strings.ReplaceAll(string(b), own, codename), filepath.Ext(path)
			}
		}
	}
	return strings.ReplaceAll(debianSources, "CODENAME", codename), ".list"
}

var aptOption = regexp.MustCompile(`(?m)^Acquire::(http|https|Check|Retries|ForceIPv4|ForceIPv6)\b.*;$`)

// aptOptions returns how this machine's apt reaches its sources: proxies and the like.
func aptOptions(ctx context.Context) ([]string, error) {
	dump, err := Run(ctx, "apt-config", "dump")
	if err != nil {
		return nil, fmt.Errorf("reading apt's settings: %w", err)
	}
	var options []string
	for _, o := range aptOption.FindAllString(dump, -1) {
		options = append(options, strings.TrimSuffix(o, ";"))
	}
	return options, nil
}
