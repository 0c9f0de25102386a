package etcd

import (
	"context"
	"embed"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

//go:embed scripts
var scripts embed.FS

const (
	restoring = runner.StateDir + "/restore"  // where the snapshot, and the program that reads it, are on a host meanwhile
	resumed   = runner.StateDir + "/restored" // which restoration has started the host again
	utility   = "etcdutl"
)

// library has the functions of a restoration, with their inputs.
func library(c *cluster.Cluster) string {
	return runner.Inputs("D", c.Spec.Etcd.DataDir, "ID", c.Restore.ID, "M", runner.ManifestDir, "R", resumed) + runner.Script(scripts, "restore")
}

// Restored lets a member of etcd that does not run begin anew with a snapshot, as one of a new cluster of etcd. The data that was there is kept beside it.
//
// Facts: https://kubernetes.io/docs/tasks/administer-cluster/configure-upgrade-etcd/#restoring-an-etcd-cluster. Revisions go on far behind those that clients have
// seen, and what they watch is told to be compacted, so that they read everything again.
type Restored struct {
	Host, PeerURL, Peers string
	Restore              cluster.Restore
	Etcd                 resource.Artifact
	Store                *resource.Store `json:"-"`
	Library              string          `json:"-"`
}

// NewRestored returns the step for one of the hosts that begin together.
func NewRestored(c *cluster.Cluster, host string, together []string) step.Step {
	var peers []string
	for _, h := range together {
		peers = append(peers, h+"="+c.PeerURL(h))
	}
	r := Restored{
		Host: host, PeerURL: c.PeerURL(host), Peers: strings.Join(peers, ","), Restore: *c.Restore, Etcd: c.Artifact("etcd", host), Store: c.Store, Library: library(c),
	}
	return step.With(r, step.Options{Timeout: 2 * time.Hour, Limit: step.LimitTransfer})
}

func (Restored) String() string { return "data of the backup" }

// Precheck looks for the mark of the restoration.
func (s Restored) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	out, err := r.Sh(ctx, s.Library+"if restored "+runner.Quote(s.Host, s.Peers)+"; then echo done; fi")
	if err != nil || out != "" {
		return nil, err
	}
	return &step.Change{Diff: fmt.Sprintf("+ the data of the backup (%s)", human.Bytes(s.Restore.Size)), Run: func(ctx context.Context) error { return s.run(ctx, r) }}, nil
}

// room is the script that looks for space: the data comes twice to a host, and etcd takes two files of its log beside it.
func room(r cluster.Restore) string { return "room " + strconv.FormatInt(2*r.Size>>10+160<<10, 10) }

// Room looks for the space that a restore takes, before anything is stopped for it.
func Room(c *cluster.Cluster) step.Step {
	return step.Command{What: "space for the data of the backup", Script: library(c), Unless: room(*c.Restore), Run: room(*c.Restore)}
}

func (s Restored) run(ctx context.Context, r *runner.Runner) error {
	if _, err := r.Sh(ctx, s.Library+room(s.Restore)); err != nil {
		return fault.Advise(err, "free space on "+r.Host+", or mount a larger disk there")
	}
	programs, err := s.Store.Programs(ctx, s.Etcd)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(programs, func(f resource.File) bool { return f.Name == utility })
	if at < 0 {
		return fmt.Errorf("%s has no %s", s.Etcd, utility)
	}
	const snapshot = "etcd.db"
	data := resource.File{Name: snapshot, Path: s.Restore.Snapshot, Size: s.Restore.Size, SHA256: s.Restore.SHA256, Mode: 0o600}
	if err := step.Send(ctx, r, restoring, programs[at], data); err != nil {
		return err
	}
	args := runner.Quote(s.Host, s.Peers, s.PeerURL, strconv.FormatInt(s.Restore.Bump, 10), path.Join(restoring, utility), path.Join(restoring, snapshot))
	if _, err := r.Sh(ctx, "set -e\n"+s.Library+"begin_anew "+args+"\nrm -rf "+restoring); err != nil {
		return fmt.Errorf("restoring the data of etcd: %w", err)
	}
	return nil
}

// Halt ends the control plane of a host, and etcd, whatever runs them.
func Halt(c *cluster.Cluster) step.Step {
	return step.With(step.Command{What: "control plane stopped", Script: library(c), Unless: "halted && [ ! -e \"$R\" ]", Run: "halt"}, step.Options{Timeout: 10 * time.Minute})
}

// Resume starts what runs on a host, once the data is there; kubelets restart, and register nodes that the data does not have.
func Resume(c *cluster.Cluster) step.Step {
	return step.Command{What: "control plane started", Script: library(c), Unless: "resumed", Run: "resume", Makes: []string{"path " + resumed}}
}
