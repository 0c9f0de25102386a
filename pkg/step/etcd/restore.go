package etcd

import (
	"context"
	"embed"
	"fmt"
	"path"
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

// restoring is where the snapshot and the program that reads it are on a host meanwhile.
const restoring = runner.StateDir + "/restore"

// Restored lets a member of etcd that does not run begin anew with a snapshot, as one of a new cluster of etcd. The data that was there is kept beside it.
//
// Facts: https://kubernetes.io/docs/tasks/administer-cluster/configure-upgrade-etcd/#restoring-an-etcd-cluster. Revisions go on far behind those that clients have
// seen, and what they watch is told to be compacted, so that they read everything again.
type Restored struct {
	Host, PeerURL, Peers string
	DataDir              string
	Restore              cluster.Restore
	Etcd                 resource.Artifact
	Store                *resource.Store `json:"-"`
}

// NewRestored returns the step for one of the hosts that begin together.
func NewRestored(c *cluster.Cluster, host string, together []string) step.Step {
	var peers []string
	for _, h := range together {
		peers = append(peers, h+"="+c.PeerURL(h))
	}
	r := Restored{
		Host: host, PeerURL: c.PeerURL(host), Peers: strings.Join(peers, ","), DataDir: c.Spec.Etcd.DataDir, Restore: *c.Restore,
		Etcd: c.Artifact("etcd", host), Store: c.Store,
	}
	return step.With(r, step.Options{Timeout: 2 * time.Hour, Limit: step.LimitTransfer})
}

func (Restored) String() string { return "data of the backup" }

func (s Restored) inputs() string { return runner.Inputs("D", s.DataDir, "ID", s.Restore.ID) }

// Precheck looks for the mark of the restoration.
func (s Restored) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	library := s.inputs() + runner.Script(scripts, "restore")
	out, err := r.Sh(ctx, library+"if restored; then echo done; fi")
	if err != nil || out != "" {
		return nil, err
	}
	return &step.Change{
		Diff: fmt.Sprintf("+ %s/member: the data of the backup (%s)", s.DataDir, human.Bytes(s.Restore.Size)),
		Run: func(ctx context.Context) error {
			utility, err := s.send(ctx, r)
			if err != nil {
				return err
			}
			script := fmt.Sprintf("begin_anew %s && rm -rf %s", runner.Quote(utility, path.Join(restoring, "etcd.db"), s.Host, s.PeerURL, s.Peers), restoring)
			if _, err := r.Sh(ctx, library+script); err != nil {
				return fault.Advise(fmt.Errorf("restoring the data of etcd: %w", err), "see that "+s.DataDir+" has space for it")
			}
			return nil
		},
	}, nil
}

// send brings to the host what it takes, and returns the path of etcdutl.
func (s Restored) send(ctx context.Context, r *runner.Runner) (utility string, err error) {
	programs, err := s.Store.Programs(ctx, s.Etcd)
	if err != nil {
		return "", err
	}
	files := []resource.File{{Name: "etcd.db", Path: s.Restore.Snapshot, Size: s.Restore.Size, SHA256: s.Restore.SHA256, Mode: 0o600}}
	for _, p := range programs {
		if p.Name == "etcdutl" {
			files = append(files, p)
			utility = path.Join(restoring, p.Name)
		}
	}
	if utility == "" {
		return "", fmt.Errorf("%s has no etcdutl", s.Etcd)
	}
	return utility, step.Send(ctx, r, restoring, files...)
}

// Halt ends the control plane of a host, and etcd, whatever runs them.
func Halt(c *cluster.Cluster) step.Step {
	return step.With(step.Command{
		What: "control plane stopped", Script: runner.Script(scripts, "restore"), Unless: "halted " + runner.ManifestDir, Run: "halt " + runner.ManifestDir,
	}, step.Options{Timeout: 10 * time.Minute})
}

// Resume starts what runs on a host, once the data is there; kubelets restart, and register nodes that the data does not have.
func Resume(c *cluster.Cluster) step.Step {
	return step.Command{
		What: "control plane started", Script: runner.Script(scripts, "restore"), Run: "resume && echo " + c.Restore.ID + " >" + resumed,
		Unless: `[ "$(cat ` + resumed + ` 2>/dev/null)" = ` + c.Restore.ID + " ]", Makes: []string{"path " + resumed},
	}
}

const resumed = runner.StateDir + "/restored"
