package step

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Pod is a static pod whose program reads files again while it runs. All of them are in one directory, which is mounted, so that the
// program sees those that take their place.
type Pod struct {
	Name     string
	Manifest File // with the frame of the files
	Reload   Reload
	Mounted  string // where their directory is in the pod, in which its commands run
}

// PodFrom is a pod of a manifest, which is made from the command that the pod runs.
func PodFrom(name string, reload Reload, mounted, command string, manifest func(command []string) []byte) Pod {
	p := Pod{Name: name, Reload: reload, Mounted: mounted}
	start := fmt.Sprintf("cd %s && %s >%s && exec %s", mounted, p.sums(), p.noted("loaded"), command)
	p.Manifest = File{Path: runner.ManifestDir + "/" + name + ".yaml", Content: manifest([]string{"sh", "-c", start}), Mode: 0o600}
	return p
}

func (p Pod) String() string { return "pod " + p.Name }

func (p Pod) files() Files {
	return Files{What: p.Name, List: append(slices.Clone(p.Reload.Files), p.Manifest)}
}

// Writes is the manifest, and what the program reads.
func (p Pod) Writes() ([]File, error) { return p.files().Writes() }

// Owns is these files, and the notes.
func (p Pod) Owns() ([]string, error) {
	own, err := p.files().Owns()
	return append(own, "path "+strings.TrimSuffix(p.noted(""), "/")), err
}

// noted is where the pod notes what it has read.
func (p Pod) noted(what string) string { return "/run/kubexm-" + p.Name + "/" + what }

// sums prints the checksums of the files.
func (p Pod) sums() string {
	line := "sha256sum"
	for _, f := range p.Reload.Files {
		line += " " + path.Base(f.Path)
	}
	return line
}

// Precheck reads the files, and what the pod has noted: nothing until it starts.
func (p Pod) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	files := p.files()
	old, out, err := r.Look(ctx, "cat "+p.noted("loaded")+" 2>/dev/null || true", files.paths()...)
	if err != nil {
		return nil, err
	}
	script := runner.Script(scripts, "pod")
	if manifest := (Files{List: []File{p.Manifest}}).gap(old); manifest.put != nil {
		change, put := files.change(r, old), files.gap(old).put
		change.Run = func(ctx context.Context) error {
			_, err := r.ChangeWith(ctx, script, "replace_pod "+p.noted(""), put...)
			return err
		}
		return change, nil
	}
	have := stateOf(out)
	loaded := map[string]string{}
	for _, f := range p.Reload.Files {
		if loaded[f.Path] = have[path.Base(f.Path)]; strings.TrimSpace(out) == "" {
			loaded[f.Path] = f.sum()
		}
	}
	return p.Reload.change(p.Name, old, loaded, func(ctx context.Context, put []runner.File) error {
		call := "reload_pod " + runner.Quote(p.Name, p.Mounted, p.Reload.Check, p.sums(), p.noted(""), p.Reload.Signal)
		_, err := r.ChangeWith(ctx, script, call, put...)
		return err
	}), nil
}
