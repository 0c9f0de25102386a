package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
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

// sums prints "mode sha256 path" of each large file, and "part sha256 path size" of parts. A checksum that Upload
// recorded is believed while size, change time and inode are still the same, so
// that looking again costs no reading of hundreds of megabytes. A part may go away meanwhile: its
// connection was lost, its script goes on.
const sums = `C=` + StateDir + `/sums
hash() { if command -v openssl >/dev/null; then h=$(openssl dgst -sha256 -r "$1"); else h=$(sha256sum "$1"); fi; echo "${h%% *}"; }
sums() { stat -c '%a %s %z %i %n' "$@" 2>/dev/null | while read -r mode size day time zone inode f; do
[ -f "$f" ] || continue; h=
if [ -f "$C$f" ]; then read -r h id <"$C$f"; [ "$id" = "$size $day $time $zone $inode" ] || h=; fi
echo "$mode ${h:-$(hash "$f")} $f"; done
for f in "$@"; do for o in "${f%/*}/.${f##*/}.kubexm".*; do if [ -s "$o" ]; then h=$(hash "$o" 2>/dev/null); n=$(stat -c %s "$o" 2>/dev/null) && echo "part $h $o $n"; fi; done; done; :; }
`

// Sums returns the checksums of files, and of their parts; a path of which there is nothing is
// missing from the result.
func (r *Runner) Sums(ctx context.Context, paths ...string) (map[string]Sum, error) {
	out, err := r.Sh(ctx, sums+"sums "+Quote(paths...))
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

// room takes a directory and the KiB that will be written there, and adds up those of one
// file system. take takes a path, a size, a checksum and permissions, and the content
// from standard input; whatever fails leaves no half file. A program that another script
// holds open, half, could not be run (ETXTBSY): this, too, is why each has a file of its own.
const take = `rooms=
room() { made "$1"; free=$(df -Pk "${1:-/}" | { read -r _; read -r _ _ _ f _; echo "$f"; })
d=$(stat -c %d "${1:-/}"); rooms="$rooms $d:$2"; need=0; for w in $rooms; do case $w in "$d":*) need=$((need+${w#*:}));; esac; done
if [ "$free" -lt "$need" ]; then echo "no space: ${1:-/} has $free KiB free, $need KiB are needed" >&2; exit 28; fi; }
take() { keep "$1"; temp "$1" "$5" "$6"; bytes $(($2-$6)) >>"$t" || drop $?; whole "$2" "$1" || exit $?; { right "$1" "$3" && chmod "$4" "$t" && safe "$t" && mv -fT "$t" "$1"; } || drop $?
mkdir -p "$C${1%/*}"; echo "$h $(stat -c '%s %z %i' "$1")" >"$C$1"; }
right() { h=$(hash "$t"); [ "$h" = "$2" ] || { echo "checksum of $1 on the host is $h, want $2" >&2; return 65; }; }
` + receive

// Upload streams large files, or what is missing of them, to a host, one after the other in one round trip:
// each is written beside its place, checked there against its checksum, synced to
// disk, then put in place atomically. Those before a failure stay.
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
	if err := r.change(ctx, sums+take+first.String(), script.String(), io.MultiReader(data...), nil); err != nil {
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
