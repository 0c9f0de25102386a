package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/kubexm/kubexm/pkg/backup"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Drill is what a backup was found to have when it was read to its end.
type Drill struct {
	backup.Manifest
	Age       time.Duration  `json:"age"`       // nanoseconds
	Files     int            `json:"files"`     // beside the data of etcd
	Data      int64          `json:"data"`      // bytes of the data of etcd; 0: there is none
	Revision  int64          `json:"revision"`  // of the last change in it
	Resources map[string]int `json:"resources"` // objects of Kubernetes, by resource
	Objects   []etcd.Object  `json:"objects,omitempty"`
}

// Manifest reads what a backup says of itself, and no further.
func (a *App) Manifest(ctx context.Context, r Request, o Observer, source string, keys []backup.Key) (*backup.Manifest, error) {
	return a.manifest(ctx, r, o, source, keys)
}

// Drill reads a backup to its end, opens its data of etcd, and counts what is in there. For that the data is in the work directory for a while, which has the keys of
// clusters, too. Nothing else is changed, and no host is asked.
func (a *App) Drill(ctx context.Context, r Request, o Observer, source string, keys []backup.Key) (d *Drill, err error) {
	dir, err := a.temporary()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d = &Drill{Resources: map[string]int{}}
	names := map[string]bool{}
	err = a.readBackup(ctx, r, o, source, func(f io.Reader) error {
		m, err := unpack(f, keys, dir, func(name string, size int64) bool {
			names[name] = true
			if name != backup.SnapshotName {
				d.Files++
				return false
			}
			d.Data = size
			return true
		})
		if err == nil {
			d.Manifest = *m
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	d.Age = time.Since(d.Taken)
	for _, needed := range []string{backup.ConfigName, "certs/id", "certs/kubernetes/ca.key", "certs/kubernetes/sa.key"} {
		if !names[needed] {
			return nil, fault.Exit(fmt.Errorf("the backup %s has no %s: no cluster can be made of it", source, needed), fault.ExitFailed)
		}
	}
	if d.Data > 0 {
		err = d.count(filepath.Join(dir, backup.SnapshotName))
	}
	return d, err
}

// count looks into the data of etcd.
func (d *Drill) count(snapshot string) error {
	if err := etcd.Whole(snapshot); err != nil {
		return err
	}
	c, err := etcd.Open(snapshot)
	if err != nil {
		return err
	}
	d.Revision, d.Objects = c.Revision, c.Objects(d.Prefix)
	for _, o := range d.Objects {
		d.Resources[o.Resource]++
	}
	if len(d.Objects) == 0 {
		err = fmt.Errorf("the data of etcd has no objects of Kubernetes below %s", d.Prefix)
	}
	return errors.Join(err, c.Close())
}
