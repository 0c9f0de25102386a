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

// Change runs a script that changes the host. The script can call
// `keep PATH` before it changes a file or a link, `made DIR` to create a directory,
// `edited PATH LINE` before it edits a file that others edit too, and
// `note "VERB VALUE"`, so that Restore can undo it; and `files` to write the given
// files as WriteFiles does.
func (r *Runner) Change(ctx context.Context, script string, files ...File) (string, error) {
	return r.ChangeWith(ctx, "", script, files...)
}

// ChangeWith is Change with a library of shell functions at hand, which an error does not show.
func (r *Runner) ChangeWith(ctx context.Context, library, script string, files ...File) (string, error) {
	var out answer
	var in io.Reader
	functions := "files() { :; }\n"
	if len(files) > 0 {
		first, puts, data := putAll(files)
		functions, in = filesScript+first+"files() { first; "+puts+"}\n", data
	}
	err := r.change(ctx, functions+library, script, in, &out)
	return strings.TrimRight(out.String(), "\n"), err
}

// change is Change with further shell functions at hand and with streams.
func (r *Runner) change(ctx context.Context, functions, script string, in io.Reader, out io.Writer) error {
	return r.call(ctx, "set -e\n"+state+ledgerScript+functions, script, in, out)
}

// call runs a script with shell functions at hand. An error shows the script without them.
func (r *Runner) call(ctx context.Context, functions, script string, in io.Reader, out io.Writer) error {
	err := r.Exec(ctx, functions+script, in, out)
	if exit := (*connector.ExitError)(nil); errors.As(err, &exit) {
		*exit = *connector.NewExitError(script, exit.Code, exit.Stderr)
	}
	return err
}

// ask is call with the output without its last newline.
func (r *Runner) ask(ctx context.Context, functions, script string) (string, error) {
	var out answer
	err := r.call(ctx, functions, script, nil, &out)
	return strings.TrimRight(out.String(), "\n"), err
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
	err := r.call(ctx, lookScript, "files "+Quote(paths...)+"\n"+script, nil, &out)
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
	if err := r.change(ctx, filesScript+first+"first\n", puts, data, nil); err != nil {
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
	out, err := r.ask(ctx, lookScript, "exist "+Quote(paths...))
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
