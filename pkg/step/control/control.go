// Package control holds the steps that work on the control machine.
package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// Keys writes the keys, certificates and passwords that were chosen while planning to the cluster's directory. Whatever
// uses them on hosts comes after it: a host must never have a key that the control machine can lose.
func Keys(c *cluster.Cluster) step.Step {
	c.ID()
	c.Leaf(pki.Admin()) // of admin.conf, which is made when the run has ended
	return keys{Store: c.Certs}
}

type keys struct {
	Store *pki.Store `json:"-"`
}

func (keys) String() string { return "keys of the cluster" }

// Precheck lists what is new. By the time that it runs all of the plan has chosen, and has it in memory.
func (k keys) Precheck(context.Context, *runner.Runner) (*step.Change, error) {
	pending := k.Store.Pending()
	if len(pending) == 0 {
		return nil, nil
	}
	return &step.Change{Diff: strings.Join(pending, "\n") + "\n", Apart: true, Run: func(context.Context) error {
		if err := k.Store.Flush(); err != nil {
			return fmt.Errorf("writing the keys of the cluster: %w", err)
		}
		return nil
	}}, nil
}
