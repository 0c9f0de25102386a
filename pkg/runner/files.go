package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/connector"
)

// File is a small file on a host, with its whole content.
type File struct {
	Path  string
	Data  []byte
	Mode  fs.FileMode // permission bits
	Owner string      // "user:group"; empty: root:root
	Edit  string      // of a file that others edit too: the line of the ledger that undoes the edit alone, see Restore
}

// ledger is the shell prelude of every script that changes a host: keep
// remembers what was at a path before kubexm, made remembers directories that
// kubexm made, edited the edit of a file that others edit too, note anything else. What
// they wrote is on the disk when they return, but between later=y and settle only then:
// after a power cut, what kubexm changed must not pass for what was there before.
const ledger = `S=` + StateDir + `; L=$S/ledger; B=$S/before; later=
safe() { sync "$@" 2>/dev/null || sync; }
noted() { grep -qxF -e "$1" "$L" 2>/dev/null; }
add() { { [ -d "$B" ] || mkdir -p "$B"; } && printf '%s\n' "$1" >>"$L" && case $later in '') safe "$L";; *) later=added;; esac; }
settle() { if [ "$later" = added ]; then safe "$L"; fi; later=; }
note() { noted "$1" || add "$1"; }
own() { case "$1" in "$S"|"$S"/*) return 0;; esac; return 1; }
keep() { if own "$1" || noted "path $1"; then return; fi
if [ -e "$1" ] || [ -L "$1" ]; then mkdir -p "$B${1%/*}"; cp -a "$1" "$B$1.part"
if [ -d "$1" ]; then sync; else safe "$B$1.part"; fi; mv -f "$B$1.part" "$B$1"; fi
add "path $1"; }
edited() { if [ -L "$1" ]; then keep "$1"; elif [ ! -e "$1" ]; then note "file $1"; fi; note "$2"; }
made() { if [ -z "$1" ] || [ -d "$1" ]; then return; fi; made "${1%/*}"; own "$1" || note "dir $1"; mkdir "$1" 2>/dev/null || [ -d "$1" ]; }
`

// Change runs a script that changes the host. The script can call
// `keep PATH` before it changes a file or a link, `made DIR` to create a directory,
// `edited PATH LINE` before it edits a file that others edit too, and
// `note "VERB VALUE"`, so that Restore can undo it; and `files` to write the given
// files as WriteFiles does.
func (r *Runner) Change(ctx context.Context, script string, files ...File) (string, error) {
	var out answer
	var in io.Reader
	functions := "files() { :; }\n"
	if len(files) > 0 {
		first, puts, data := putAll(files)
		functions, in = put+first+"files() { first; "+puts+"}\n", data
	}
	err := r.change(ctx, functions, script, in, &out)
	return strings.TrimRight(out.String(), "\n"), err
}

// change is Change with further shell functions at hand and with streams. An
// error shows the script without the functions.
func (r *Runner) change(ctx context.Context, functions, script string, in io.Reader, out io.Writer) error {
	err := r.Exec(ctx, "set -e; "+ledger+functions+script, in, out)
	if exit := (*connector.ExitError)(nil); errors.As(err, &exit) {
		*exit = *connector.NewExitError(script, exit.Code, exit.Stderr)
	}
	return err
}

// ReadFiles reads regular files in one round trip. A path that does not exist
// is missing from the result; a directory or a device is an error.
func (r *Runner) ReadFiles(ctx context.Context, paths ...string) (map[string]File, error) {
	files, _, err := r.Look(ctx, "", paths...)
	return files, err
}

// Look reads files as ReadFiles does and, in the same round trip, the output of a
// script that changes nothing, without its last newline.
func (r *Runner) Look(ctx context.Context, script string, paths ...string) (map[string]File, string, error) {
	var out answer
	err := r.Exec(ctx, `for f in `+Quote(paths...)+`; do if [ -f "$f" ]; then stat -L -c '%s %a %U:%G' "$f"; cat "$f"
elif [ -e "$f" ]; then echo "$f is not a regular file" >&2; exit 1; else echo -; fi; done
`+script, nil, &out)
	if err != nil {
		return nil, "", fmt.Errorf("reading files: %w", err)
	}
	files := map[string]File{}
	for _, p := range paths {
		head, err := out.ReadString('\n')
		if err != nil {
			return nil, "", fmt.Errorf("reading %s: answer cut short: %w", p, io.ErrUnexpectedEOF)
		}
		f := strings.Fields(head)
		if len(f) != 3 {
			continue
		}
		size, err1 := strconv.Atoi(f[0])
		mode, err2 := strconv.ParseUint(f[1], 8, 32)
		if err1 != nil || err2 != nil || size > out.Len() {
			return nil, "", fmt.Errorf("reading %s: unexpected answer %q", p, head)
		}
		files[p] = File{Path: p, Data: bytes.Clone(out.Next(size)), Mode: fs.FileMode(mode), Owner: f[2]}
	}
	return files, strings.TrimRight(out.String(), "\n"), nil
}

// put takes a path, a size, permissions and an owner, and the content from
// standard input. Less content than promised (the connection broke) changes nothing,
// and whatever fails leaves no half file.
const put = `put() { temp "$1"; { (umask 077; bytes "$2" >"$t") && whole "$2" "$1" && chmod "$3" "$t" && chown "$4" "$t" && mv -fT "$t" "$1"; } || drop $?; }
` + receive

// temp names the temporary file of a path: one of the script's own, as that of a connection
// that was lost may live on for long, and hidden, as the kubelet reads all others in its
// directory of static pods. It begins with as many bytes of another one as are said; spare removes those that were left
// behind, but one. bytes passes on so many of standard input, in the pieces in which sshd writes: a fifth quicker
// than head -c. drop removes the temporary file and ends the script with a status.
const receive = `temp() { o=${1%/*}/.${1##*/}.kubexm; t=$o.$$; while [ -e "$t" ]; do t=${t}0; done
if [ "${3:-0}" != 0 ]; then head -c "$3" "$2" >"$t" || drop 75; fi; spare "$1" "$t"; }
spare() { for o in "${1%/*}/.${1##*/}.kubexm".*; do if [ "$o" != "$2" ]; then rm -f "$o"; fi; done; }
bytes() { dd bs=32k iflag=fullblock,count_bytes count="$1" status=none; }
whole() { [ "$(stat -c %s "$t")" = "$1" ] || { echo "content of $2 cut short" >&2; return 65; }; }
drop() { rm -f "$t"; exit "$1"; }
`

// putAll returns a function that notes files, as all lines of the ledger then go to the disk
// at once; the calls of it and of put; and what they read.
func putAll(files []File) (first, script string, data *bytes.Buffer) {
	var notes, puts strings.Builder
	data = &bytes.Buffer{} // of known length: a small one costs no session of its own
	for _, f := range files {
		owner := f.Owner
		if owner == "" {
			owner = "root:root"
		}
		p := Quote(f.Path)
		fmt.Fprintf(&notes, "made %s; ", Quote(strings.TrimSuffix(path.Dir(f.Path), "/")))
		if f.Edit == "" {
			fmt.Fprintf(&notes, "keep %s\n", p)
		} else {
			fmt.Fprintf(&notes, "edited %s %s\n", p, Quote(f.Edit))
		}
		fmt.Fprintf(&puts, "put %s %d %04o %s\n", p, len(f.Data), f.Mode.Perm(), Quote(owner))
		data.Write(f.Data)
	}
	return "first() { later=y; " + notes.String() + "settle; }\n", puts.String(), data
}

// WriteFiles replaces files, each atomically, in one round trip; missing
// directories are made (0755). What was there before kubexm is kept for Restore.
func (r *Runner) WriteFiles(ctx context.Context, files ...File) error {
	first, puts, data := putAll(files)
	if err := r.change(ctx, put+first+"first\n", puts, data, nil); err != nil {
		return fmt.Errorf("writing %s: %w", describe(files[0].Path, len(files)), err)
	}
	return nil
}

// describe names files for a message, by the first of them.
func describe(path string, n int) string {
	if n == 1 {
		return path
	}
	return fmt.Sprintf("%s and %d more files", path, n-1)
}

// Remove removes paths with all below them, and parts of them; a missing path is not an error.
func (r *Runner) Remove(ctx context.Context, paths ...string) error {
	var parts strings.Builder
	for _, p := range paths {
		dir, name := path.Split(p)
		parts.WriteString(" " + Quote(dir+"."+name+".kubexm.") + "*")
	}
	if _, err := r.Sh(ctx, "rm -rf -- "+Quote(paths...)+parts.String()); err != nil {
		return fmt.Errorf("removing %s: %w", strings.Join(paths, ", "), err)
	}
	return nil
}

// Exists returns those of the paths that exist.
func (r *Runner) Exists(ctx context.Context, paths ...string) ([]string, error) {
	out, err := r.Sh(ctx, `for f in `+Quote(paths...)+`; do if [ -e "$f" ] || [ -L "$f" ]; then echo "$f"; fi; done`)
	if err != nil {
		return nil, fmt.Errorf("looking for %s: %w", strings.Join(paths, ", "), err)
	}
	return lines(out), nil
}

func lines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}
