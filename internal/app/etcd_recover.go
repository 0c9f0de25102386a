package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/kubexm/kubexm/pkg/backup"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	etcdstep "github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// RecoverEtcd lets an etcd that has lost its majority for good go on with what the member of one host has. It is a restore in place of that data: all members begin anew with it, and what
// they had is kept beside it. It can be repeated until it has ended well. MayRestore is asked before.
func (a *App) RecoverEtcd(ctx context.Context, r Request, o Observer, host string) (*Result, error) {
	rest, name, err := a.salvage(ctx, r, o, host)
	if err != nil {
		return nil, err
	}
	return a.endRestore(ctx, r, o, name, rest)
}

// salvage brings the data of one member to all.
func (a *App) salvage(ctx context.Context, r Request, o Observer, host string) (rest *restoration, name string, err error) {
	r.restore = &cluster.Restore{}
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return nil, "", err
	}
	defer w.close()
	if err := cmp.Or(w.checkMade(), w.ownEtcd(), w.has([]string{host})); err != nil {
		return nil, "", err
	}
	rest, err = w.begunRestore()
	other := false
	switch {
	case err != nil:
		return nil, "", err
	case rest == nil:
		rest = &restoration{From: host}
	case rest.From != "" && rest.SHA256 == "": // nothing was taken from another one
		rest.From, other = host, true
	case rest.From != host:
		return nil, "", fault.Exit(fmt.Errorf("%s has begun, and has not ended: run that again", rest.what()), fault.ExitUsage)
	}
	s, m, err := w.salvageable(ctx, rest)
	if err != nil {
		return nil, "", err
	}
	if rest.ID == "" {
		rest.Taken = m.Taken
		if err := s.beginRestore(ctx, rest, m); err != nil {
			return nil, "", err
		}
	} else if other {
		if err = s.mayRestore(ctx, rest); err == nil {
			err = s.note(rest)
		}
		if err != nil {
			return nil, "", err
		}
	}
	rest.Snapshot = filepath.Join(s.dir, rest.dir(), backup.SnapshotName)
	if size, sum, err := sumOf(rest.Snapshot); !rest.Data && (err != nil || size != rest.Size || sum != rest.SHA256) {
		if err := s.fetch(ctx, rest); err != nil {
			return nil, "", fault.AdviseMore(err, "the cluster is down until its recovery has ended: run the same command again")
		}
	}
	return rest, m.Cluster, s.bringData(ctx, rest)
}

// salvageable connects to the machines, and refuses a recovery that is not needed.
func (w *work) salvageable(ctx context.Context, rest *restoration) (*site, *backup.Manifest, error) {
	id, err := (&pki.Store{Dir: filepath.Join(w.dir, "certs")}).RecordedID()
	if err != nil {
		return nil, nil, err
	}
	s, err := w.reachRestored(ctx, rest, &backup.Manifest{ID: id})
	if err != nil {
		return nil, nil, err
	}
	m, _, err := s.manifest()
	if err != nil {
		return nil, nil, err
	}
	if !slices.Contains(s.cluster.Etcd(), rest.From) || s.hosts[rest.From] == nil {
		return nil, nil, fault.Exit(fmt.Errorf("%s has no member of etcd, or cannot be reached", rest.From), fault.ExitUsage)
	}
	if here, err := s.inPlace(); err != nil || !here {
		return nil, nil, cmp.Or(err, fault.Exit(errors.New("the machines do not have the cluster"), fault.ExitUsage))
	}
	if rest.SHA256 != "" { // its data was taken
		return s, &m, nil
	}
	if out, err := s.hosts[rest.From].Sh(ctx, "if [ -s "+runner.Quote(s.database())+" ]; then echo there; fi"); err != nil || out == "" {
		return nil, nil, cmp.Or(err, fault.Exit(fmt.Errorf("%s has no data of etcd: there is no %s", rest.From, s.database()), fault.ExitUsage))
	}
	s.observe(ctx)
	if s.cluster.Observed.EtcdLeader() != "" {
		err := errors.New("etcd has a leader, and so its majority: there is nothing to recover")
		return nil, nil, fault.Exit(fault.Advise(err, "a member that is lost is replaced (kubexm replace node); what is wrong: kubexm status"+s.Which()), fault.ExitUsage)
	}
	return s, &m, nil
}

// fetch ends the member whose data is taken, so that it has written all that it knows, and copies that.
func (s *site) fetch(ctx context.Context, rest *restoration) error {
	r := s.hosts[rest.From]
	halt := etcdstep.Halt(s.cluster)
	change, err := halt.Precheck(ctx, r)
	if err == nil && change != nil {
		err = change.Run(ctx)
	}
	if err != nil {
		return &HostError{rest.From, fmt.Errorf("stopping its control plane: %w", err)}
	}
	data := s.database()
	step.Tell(ctx, "copying "+data)
	err = etcd.Salvage(rest.Snapshot, func(to io.Writer) error {
		return r.Stream(ctx, connector.Cmd{Line: "cat " + runner.Quote(data), Sudo: true, Stdout: to})
	})
	if err == nil {
		rest.Size, rest.SHA256, err = sumOf(rest.Snapshot)
	}
	if err == nil {
		err = etcd.Whole(rest.Snapshot)
	}
	if err != nil {
		return &HostError{rest.From, durable.Advise(fmt.Errorf("copying %s: %w", data, err))}
	}
	return s.note(rest)
}

// database is the file of a member of etcd with its data.
func (s *site) database() string { return s.config.Spec.Etcd.DataDir + "/member/snap/db" }
