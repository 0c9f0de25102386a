// Command pins brings pkg/resource/pins.json, the checksums and digests that are built into kubexm, up to date with the default versions of everything: it has
// kubexm download them from their publishers, and takes over what that noted in the lock file. It is run by make pins before a release, with internet.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kubexm/kubexm/pkg/config"
)

const pinned = "pkg/resource/pins.json"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "pins:", err)
		os.Exit(1)
	}
}

func run() error {
	work, err := os.MkdirTemp("", "kubexm-pins-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	cmd := exec.Command("bin/kubexm", "download", "--k8s", strings.Join(tested(), ","), "--arch", "amd64,arm64", "--workdir", work)
	cmd.Env = append(os.Environ(), "KXZONE=")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("downloading all default versions: %w", err)
	}
	lock, err := os.ReadFile(filepath.Join(work, "packages", "lock.json"))
	if err != nil {
		return err
	}
	old, err := os.ReadFile(pinned)
	if err != nil {
		return err
	}
	text, err := merge(old, lock)
	if err != nil {
		return err
	}
	return os.WriteFile(pinned, text, 0o644)
}

// tested are the newest versions of Kubernetes of all minors that are tested.
func tested() (all []string) {
	for v := version.MustParseSemantic(config.DefaultKubernetes()); ; v = v.WithMinor(v.Minor() - 1).WithPatch(0) {
		parts := config.VersionsFor("v" + v.String())
		if !parts.Tested {
			return all
		}
		all = append(all, parts.Kubernetes)
	}
}

type (
	file struct {
		SHA256 string `json:"sha256"`
		From   string `json:"from"`
	}
	image struct {
		Digest    string         `json:"digest"`
		Manifests map[string]any `json:"manifests"`
	}
	pins struct {
		Files  map[string]file  `json:"files"`
		Images map[string]image `json:"images,omitempty"`
	}
)

// merge adds to pins what a lock file knows. What was pinned stays: another checksum for it is an error.
func merge(old, lock []byte) ([]byte, error) {
	var all, fresh pins
	if err := json.Unmarshal(old, &all); err != nil {
		return nil, fmt.Errorf("reading %s: %w", pinned, err)
	}
	if err := json.Unmarshal(lock, &fresh); err != nil {
		return nil, fmt.Errorf("reading the lock file: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(fresh.Files)) {
		if had, is := all.Files[key]; is && had.SHA256 != fresh.Files[key].SHA256 {
			return nil, fmt.Errorf("%s: SHA-256 %s is pinned, its publisher says %s", key, had.SHA256, fresh.Files[key].SHA256)
		} else if !is {
			all.Files[key] = fresh.Files[key]
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(fresh.Images)) {
		if had, is := all.Images[ref]; is && had.Digest != fresh.Images[ref].Digest {
			return nil, fmt.Errorf("image %s: %s is pinned, its publisher says %s", ref, had.Digest, fresh.Images[ref].Digest)
		}
		if all.Images == nil {
			all.Images = map[string]image{}
		}
		all.Images[ref] = fresh.Images[ref]
	}
	text, err := json.MarshalIndent(all, "", "  ")
	return append(text, '\n'), err
}
