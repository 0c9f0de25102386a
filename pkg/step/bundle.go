package step

import (
	"context"

	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/runner"
)

// Pack writes a bundle of what is in the store, again each time.
type Pack struct {
	Bundle resource.Bundle
	Store  *resource.Store
	Done   func([]resource.Volume) `json:"-"` // told the files that were written
}

func (p Pack) String() string { return "write bundle " + p.Bundle.Path }

// Precheck does not look for an older bundle.
func (p Pack) Precheck(context.Context, *runner.Runner) (*Change, error) {
	return &Change{Diff: "+ " + p.Bundle.Path, Verify: Verified, Run: func(ctx context.Context) error {
		volumes, err := p.Store.Pack(ctx, p.Bundle, Progress(ctx))
		if err == nil {
			p.Done(volumes)
		}
		return err
	}}, nil
}

// Import takes a bundle into the store. What is there already is left alone.
type Import struct {
	File  string   // or the first of its volumes
	Keys  []string `json:",omitempty"` // public ones, of which one must have signed it; empty: whoever has
	Store *resource.Store
	Done  func(resource.Imported) `json:"-"` // told what was in it
}

func (i Import) String() string { return "import " + i.File }

// Precheck leaves the look to Run: both read the whole bundle.
func (i Import) Precheck(context.Context, *runner.Runner) (*Change, error) {
	return &Change{Diff: "+ " + i.File, Verify: Verified, Run: func(ctx context.Context) error {
		done, err := i.Store.Import(ctx, i.File, i.Keys, Progress(ctx))
		if err == nil {
			i.Done(done)
		}
		return err
	}}, nil
}
