package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Snapshot is a snapshot of etcd on the control machine, from before a part of the control plane changes its version.
type Snapshot struct {
	Path   string
	Begun  bool        // a part has changed already: a snapshot that is there is the one from before
	None   bool        `json:",omitempty"` // no member is well: it must be there
	Member etcd.Access `json:"-"`
}

// SnapshotFile is where the snapshot from before an upgrade is: below the cluster's directory on the control machine, named after what ran.
func SnapshotFile(c *cluster.Cluster) string {
	is, _ := c.Runs()
	return snapshotFile(c, is)
}

func snapshotFile(c *cluster.Cluster, is config.Release) string {
	return filepath.Join(c.Dir, "snapshots", fmt.Sprintf("kubernetes-%s-etcd-%s.db", is.Kubernetes, is.Etcd))
}

// NewSnapshot returns the step that takes one from the member on a host. Without one, on the control machine, it only looks for the one of a run that was cut off: members that
// do not answer may have begun to change, and then nobody knows their version.
func NewSnapshot(c *cluster.Cluster, host string) step.Step {
	is, begun := c.Runs()
	if host == plan.Control {
		s := Snapshot{Begun: begun || is.Etcd == "", None: true}
		is.Etcd = cmp.Or(is.Etcd, "*")
		s.Path = snapshotFile(c, is)
		return s
	}
	return step.With(Snapshot{Path: SnapshotFile(c), Begun: begun, Member: c.EtcdAccess(host)}, step.Options{Timeout: time.Hour})
}

// SnapshotHost is whose member a snapshot is taken from: one that is well, and does not lead, where there is such a one; empty: none answers.
func SnapshotHost(c *cluster.Cluster) (host string) {
	leader := c.Observed.EtcdLeader()
	for _, m := range c.Observed.Members {
		if m.Healthy && !m.Learner && slices.Contains(c.EtcdHosts(), m.Host) && (host == "" || host == leader) {
			host = m.Host
		}
	}
	return host
}

func (Snapshot) String() string { return "snapshot of etcd" }

// Precheck looks for one that is whole. Unless the upgrade has begun it is taken again: one that is there is of an earlier upgrade.
func (s Snapshot) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	taken, err := filepath.Glob(s.Path)
	if err != nil {
		return nil, err
	}
	if s.Begun && slices.ContainsFunc(taken, func(path string) bool { return etcd.Whole(path) == nil }) {
		return nil, nil
	}
	if s.None {
		return nil, fault.Advise(errors.New("nothing is upgraded without a snapshot of etcd, and no member of it is well"), "see what is wrong with it (kubexm status), and repair it with the versions that it has")
	}
	return &step.Change{Diff: "+ " + s.Path, Apart: true, Verify: step.Verified, Run: func(ctx context.Context) error {
		return through(s.Member, r, func(client *etcd.Client) error {
			size, err := client.Snapshot(ctx, s.Path)
			if err != nil {
				return fault.Advise(fmt.Errorf("nothing is upgraded without a snapshot: %w", err), "run it again once etcd answers, and the control machine has space for its data")
			}
			step.Tell(ctx, fmt.Sprintf("%s in %s", human.Bytes(size), s.Path))
			return nil
		})
	}}, nil
}
