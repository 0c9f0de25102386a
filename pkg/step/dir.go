package step

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Dir ensures a directory.
type Dir struct {
	Path string
	Mode fs.FileMode // permission bits
}

func (d Dir) String() string { return "directory " + d.Path }

// Precheck looks at the directory.
func (d Dir) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	q, want := runner.Quote(d.Path), fmt.Sprintf("%o", d.Mode.Perm())
	have, err := r.Sh(ctx, `if [ -d `+q+` ]; then stat -c %a `+q+`; fi`)
	if err != nil || have == want {
		return nil, err
	}
	return &Change{
		Diff: fmt.Sprintf("+ directory %s %s", d.Path, want),
		Run: func(ctx context.Context) error {
			_, err := r.Change(ctx, "made "+q+"; chmod "+want+" "+q)
			return err
		},
		Rollback: func(ctx context.Context) error {
			undo := "chmod " + have + " " + q
			if have == "" {
				undo = "rmdir " + q + " 2>/dev/null || true" // what others put there stays
			}
			_, err := r.Sh(ctx, undo)
			return err
		},
	}, nil
}
