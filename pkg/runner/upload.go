package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Sum is the checksum and the permissions of a file on a host.
type Sum struct {
	SHA256 string // lower-case hex; empty: there is none but Part
	Mode   fs.FileMode
	Part   Part
}

// Part is the beginning of a file, which an upload that was cut short has left on a host.
type Part struct {
	Path   string // of its own
	Size   int64  // bytes
	SHA256 string // of these
}

// Sums returns the checksums of files, and of their parts; a path of which there is nothing is
// missing from the result.
func (r *Runner) Sums(ctx context.Context, paths ...string) (map[string]Sum, error) {
	out, err := r.ask(ctx, state+sumsScript, "sums "+Quote(paths...))
	if err != nil {
		return nil, fmt.Errorf("reading checksums: %w", err)
	}
	found := map[string]Sum{}
	for _, l := range lines(out) {
		f := strings.SplitN(l, " ", 3)
		if len(f) != 3 {
			return nil, fmt.Errorf("reading checksums: unexpected answer %q", l)
		}
		if f[0] == "part" {
			at := max(strings.LastIndexByte(f[2], ' '), 0)
			size, err := strconv.ParseInt(strings.TrimSpace(f[2][at:]), 10, 64)
			whole := wholeOf.FindStringSubmatch(f[2][:at])
			if err != nil || whole == nil || f[1] == "" {
				continue // no part, or none any more
			}
			if of := found[whole[1]+whole[2]]; size > of.Part.Size {
				of.Part = Part{Path: whole[0], Size: size, SHA256: f[1]}
				found[whole[1]+whole[2]] = of
			}
			continue
		}
		mode, err := strconv.ParseUint(f[0], 8, 32)
		if err != nil {
			return nil, fmt.Errorf("reading checksums: unexpected answer %q", l)
		}
		found[f[2]] = Sum{SHA256: f[1], Mode: fs.FileMode(mode)}
	}
	return found, nil
}

// wholeOf is the path of a part: it tells that of the file.
var wholeOf = regexp.MustCompile(`^(.*/)\.(.+)\.kubexm\.[0-9]+$`)

// Upload is a large file on its way to a host.
type Upload struct {
	Path   string // on the host
	Mode   fs.FileMode
	Size   int64     // bytes
	SHA256 string    // lower-case hex
	Part   Part      // of it that is there already
	Data   io.Reader // what comes after that
}

// Exit statuses of an upload: there is no space for it (ENOSPC); the part that it should go on with is gone (EX_TEMPFAIL).
const (
	noSpace  = 28
	partGone = 75
)

// uploads are the functions of scripts that put large files in place.
var uploads = filesScript + sumsScript + uploadScript

// Upload streams large files, or what is missing of them, to a host, one after the other in one round trip:
// each is written beside its place, checked there against its checksum, synced to
// disk, then put in place atomically. Those before a failure stay. The one version of a file
// that each replaces is kept, for Revert.
func (r *Runner) Upload(ctx context.Context, files ...Upload) error {
	var dirs []string
	var data []io.Reader
	var first, script strings.Builder
	need := map[string]int64{}
	for _, f := range files {
		dir := path.Dir(f.Path)
		if need[dir] == 0 {
			dirs = append(dirs, dir)
		}
		need[dir] += max(f.Part.Size, f.Size-f.Part.Size)/1024 + 1 // beside the part
		data = append(data, f.Data)
		fmt.Fprintf(&first, "spare %s %s\n", Quote(f.Path), Quote(f.Part.Path))
	}
	for _, d := range dirs {
		fmt.Fprintf(&script, "room %s %d\n", Quote(strings.TrimSuffix(d, "/")), need[d])
	}
	for _, f := range files {
		fmt.Fprintf(&script, "take %s %d %s %04o %s %d\n", Quote(f.Path), f.Size, f.SHA256, f.Mode.Perm(), Quote(f.Part.Path), f.Part.Size)
	}
	if err := r.change(ctx, uploads+first.String(), script.String(), io.MultiReader(data...), nil); err != nil {
		err = fmt.Errorf("uploading %s: %w", describe(files[0].Path, len(files)), err)
		exit, _ := errors.AsType[*connector.ExitError](err)
		switch {
		case exit != nil && exit.Code == noSpace:
			err = fault.Advise(err, "free space on "+r.Host+", or mount a larger disk there")
		case exit != nil && exit.Code == partGone:
			err = fault.Transient(err)
		}
		return err
	}
	return nil
}

// Revert puts files in place again that Upload has replaced, as they were: with their checksums and permissions. A file
// that is as it was stays so; of one that is neither, nor kept, it tells.
func (r *Runner) Revert(ctx context.Context, was map[string]Sum) error {
	var script strings.Builder
	for _, p := range slices.Sorted(maps.Keys(was)) {
		fmt.Fprintf(&script, "former %s %s %04o\n", Quote(p), was[p].SHA256, was[p].Mode)
	}
	if err := r.change(ctx, uploads, script.String(), nil, nil); err != nil {
		return fmt.Errorf("bringing back what was replaced: %w", err)
	}
	return nil
}
