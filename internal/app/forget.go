package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// archiveDir has what was kept of clusters that were deleted without all their machines: a numbered directory for each.
const archiveDir = "archive"

// confirmUnseen lets nobody delete a cluster of which no machine was reached, unless by force and with a confirmation: it
// may be the way there that is broken, and the cluster well.
func (s *session) confirmUnseen(ctx context.Context, failed []*HostError) error {
	if !s.Force {
		return joined(failed)
	}
	if s.DryRun {
		return nil
	}
	name := s.config.Metadata.Name
	refused := fmt.Errorf("no machine of cluster %s was reached: it may still run, and the network, a VPN or the bastion be down", name)
	if s.MayForget != nil {
		refused = s.MayForget(ctx, name, refused.Error())
	} else {
		refused = fault.Advise(refused, "see why they cannot be reached; if all are gone for good, confirm with the cluster's name")
	}
	if refused == nil {
		return nil
	}
	return errors.Join(refused, joined(failed))
}

// archive moves what is needed to reach and keep a cluster that may still run on hosts to a place of its own.
func (w *work) archive(hosts []string) error {
	to := ""
	for _, f := range []string{"certs", cluster.AdminConf} {
		from := filepath.Join(w.dir, f)
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if to == "" {
			var err error
			if to, err = w.newArchive(); err != nil {
				return durable.Advise(fmt.Errorf("making an archive of the cluster's keys: %w", err))
			}
		}
		if err := durable.Move(from, filepath.Join(to, f)); err != nil {
			return durable.Advise(fmt.Errorf("archiving the cluster's keys: %w", err))
		}
	}
	if to != "" {
		applied, err := w.records.Applied()
		if err == nil && applied != nil {
			err = durable.Write(filepath.Join(to, "cluster.yaml"), applied.Given)
		}
		if err != nil {
			return fmt.Errorf("archiving the cluster's configuration: %w", err)
		}
		w.notice("warning: the cluster may still run on %s: its keys, kubeconfig and configuration are kept in %s; once it is gone for good: rm -r %s",
			human.Names(hosts, 10), to, runner.Quote(to))
	}
	return nil
}

// newArchive makes the next numbered directory.
func (w *work) newArchive() (string, error) {
	root := filepath.Join(w.dir, archiveDir)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		dir := filepath.Join(root, strconv.Itoa(n))
		if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			return dir, err
		}
	}
}

// forget removes what a deleted cluster leaves on the control machine, but for
// the record of its runs and the host keys of its machines.
func (w *work) forget(c *cluster.Cluster) error {
	built, err := w.records.Built()
	if err != nil {
		return err
	}
	for _, f := range slices.Concat(c.All(), stale(c, built), []string{"certs", cluster.AdminConf, contentKey, objectsDir, restoreDir, restoreNote, escrowNote}) {
		if err := os.RemoveAll(filepath.Join(w.dir, f)); err != nil {
			return fmt.Errorf("removing what belonged to the cluster: %w", err)
		}
	}
	return w.records.Forget() // last: until then it is known what there is to remove
}

// tellEtcd says what a deleted cluster leaves in an external etcd.
func (s *site) tellEtcd() {
	if s.cluster.ExternalEtcd() {
		s.notice("etcd at %s is left alone: what the cluster stored, including its secrets, is still there; to remove it: etcdctl del --prefix %s",
			strings.Join(s.cluster.Spec.Etcd.External.Endpoints, ","), s.cluster.EtcdPrefix())
	}
}
