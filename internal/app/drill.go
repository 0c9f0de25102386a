package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/backup"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/kube"
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

// Drill reads a backup to its end, opens its data of etcd, and counts what is in there. For that the data is in the work directory for a while, which has the keys of
// clusters, too. Nothing else is changed, and no host is asked.
func (a *App) Drill(ctx context.Context, r Request, o Observer, source string, keys []backup.Key) (*Drill, error) {
	d, err := a.opened(ctx, r, o, source, keys, func(d *Drill, c *etcd.Contents) error {
		d.Revision, d.Objects = c.Revision, c.Objects(d.Prefix)
		for _, o := range d.Objects {
			d.Resources[o.Resource]++
		}
		if len(d.Objects) == 0 {
			return fmt.Errorf("the data of etcd has no objects of Kubernetes below %s", d.Prefix)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Extract returns objects of Kubernetes in a backup as YAML documents that can be applied again. They are named as Object.String does, or by what that begins with: all of a resource, or
// of a namespace.
func (a *App) Extract(ctx context.Context, r Request, o Observer, source string, keys []backup.Key, names []string) (text []byte, err error) {
	_, err = a.opened(ctx, r, o, source, keys, func(d *Drill, c *etcd.Contents) error {
		found := map[string]bool{}
		for _, o := range c.Objects(d.Prefix) {
			at := slices.IndexFunc(names, func(n string) bool { return o.String() == n || strings.HasPrefix(o.String(), n+"/") })
			if at < 0 {
				continue
			}
			found[names[at]] = true
			value, err := c.Value(o.Key)
			if err != nil {
				return err
			}
			object, err := kube.Stored(value)
			if err != nil {
				return fmt.Errorf("%s: %w", o, err)
			}
			document, err := yaml.Marshal(object.Object)
			if err != nil {
				return err
			}
			text = append(append(text, "---\n"...), document...)
		}
		for _, n := range names {
			if !found[n] {
				err := fmt.Errorf("the backup has no %s", n)
				return fault.Exit(fault.Advise(err, "list what it has: kubexm backup show BACKUP --objects"), fault.ExitUsage)
			}
		}
		return nil
	})
	return text, err
}

// opened reads a backup to its end, and opens its data of etcd where there is such.
func (a *App) opened(ctx context.Context, r Request, o Observer, source string, keys []backup.Key, use func(*Drill, *etcd.Contents) error) (d *Drill, err error) {
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
	if d.Data == 0 {
		return d, nil
	}
	snapshot := filepath.Join(dir, backup.SnapshotName)
	if err := etcd.Whole(snapshot); err != nil {
		return nil, err
	}
	c, err := etcd.Open(snapshot)
	if err != nil {
		return nil, err
	}
	return d, errors.Join(use(d, c), c.Close())
}
