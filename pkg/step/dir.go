package step

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Dir ensures a directory of root's. What it was like is noted, for Restore.
type Dir struct {
	Path string
	Mode fs.FileMode // permission bits
}

func (d Dir) String() string { return "directory " + d.Path }

// Owns is the directory, or what it was like.
func (d Dir) Owns() ([]string, error) { return []string{"dir " + d.Path, "mode " + d.Path}, nil }

// Precheck looks at the directory.
func (d Dir) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	q, want := runner.Quote(d.Path), fmt.Sprintf("%o 0:0", d.Mode.Perm())
	have, err := r.Sh(ctx, `if [ -d `+q+` ]; then stat -L -c '%a %u:%g' `+q+`; fi`)
	if err != nil || have == want {
		return nil, err
	}
	mode, owner, there := strings.Cut(have, " ")
	c := &Change{Diff: fmt.Sprintf("+ directory %s %o", d.Path, d.Mode.Perm())}
	undo, note := "rmdir "+q+" 2>/dev/null || true", "" // what others put there stays
	if there {
		c.Diff = fmt.Sprintf("directory %s: %s -> %s", d.Path, have, want)
		undo = "chown " + owner + " " + q + "; chmod " + mode + " " + q
		// A directory that kubexm made, or whose first state is noted, was left half done.
		was := runner.Quote("mode " + d.Path + "\t")
		note = "noted " + runner.Quote("dir "+d.Path) + ` || grep -qF -e ` + was + ` "$L" 2>/dev/null || note ` + was + runner.Quote(mode+"\t"+owner) + "; "
	}
	c.Run = func(ctx context.Context) error {
		_, err := r.Change(ctx, fmt.Sprintf("made %s; %schown 0:0 %[1]s; chmod %05[3]o %[1]s", q, note, d.Mode.Perm())) // five digits: nor setgid
		return err
	}
	c.Rollback = func(ctx context.Context) error {
		_, err := r.Sh(ctx, undo)
		return err
	}
	return c, nil
}
