package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/backup"
	"github.com/kubexm/kubexm/pkg/backup/place"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/etcd"
	etcdstep "github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// BackupOptions say what a backup is to be; what is empty is as configured.
type BackupOptions struct {
	To         []string // directories, instead of the places of the configuration
	Recipients []string // who can read it
	Plain      bool     // everybody can
}

// Backup is a backup that was taken.
type Backup struct {
	Cluster string        `json:"cluster"`
	Name    string        `json:"name"`
	Places  []string      `json:"places"`
	Size    int64         `json:"size"`              // bytes
	Etcd    int64         `json:"etcd"`              // bytes of the snapshot of etcd; 0: there is none
	From    string        `json:"from,omitempty"`    // the host whose member of etcd gave it
	Expired []string      `json:"expired,omitempty"` // older ones that were removed: place and name
	Elapsed time.Duration `json:"elapsed"`           // nanoseconds
}

// kept are what the control machine has of a cluster, below its directory, and what no other machine has.
var kept = []string{"certs", contentKey, hostKeysFile}

// Backup takes a backup of a cluster: of etcd, if that is the cluster's own, and of what the control machine has of it. Nothing of it is written unencrypted
// but where Plain asks for it. The cluster goes on meanwhile.
func (a *App) Backup(ctx context.Context, r Request, o Observer, b BackupOptions) (*Backup, error) {
	began := time.Now()
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	if err := w.checkMade(); err != nil {
		return nil, err
	}
	if rest, err := w.begunRestore(); err != nil || rest != nil && !rest.Data { // else etcd has all that it is to have
		return nil, cmp.Or(err, w.checkRestored())
	}
	recipients, err := w.recipients(b)
	if err != nil {
		return nil, err
	}
	places, err := w.places(ctx, b.To)
	if err == nil && places == nil {
		err = fault.Exit(fault.Advise(errors.New("there is no place for backups"), "name some in spec.backup.targets, or give a directory: --to DIR"), fault.ExitUsage)
	}
	if err != nil {
		return nil, err
	}
	s, failed, err := w.reach(ctx, false, v1alpha1.Source{Offline: true})
	if err != nil {
		return nil, errors.Join(joined(failed), err)
	}
	s.observe(ctx)
	res := &Backup{Cluster: s.config.Metadata.Name}
	for _, e := range failed { // etcd alone is asked
		s.notice("warning: %v", e)
	}
	m, entries, err := s.entrusted()
	if err != nil {
		return nil, err
	}
	res.Name = place.Name(res.Cluster, m.Taken, recipients != nil)
	all := s.store(ctx, res, places, func(to io.Writer) error {
		count := &counter{w: to}
		snapshot, err := s.snapshot(ctx, res)
		if err == nil {
			err = backup.Write(count, recipients, m, append(slices.Clone(entries), snapshot...)...)
		}
		res.Size = count.n
		return err
	})
	if all == nil { // else older ones may be all that there is
		if res.Expired, err = prune(ctx, places, res.Cluster, s.keeps()); err != nil {
			all = append(all, err)
		}
	}
	res.Elapsed = time.Since(began)
	return res, errors.Join(all...)
}

// store writes a backup to places, and lists those in the result that have it; one snapshot is enough: what the first of them has is copied to the others.
func (s *site) store(ctx context.Context, res *Backup, places []place.Place, take func(io.Writer) error) (all []error) {
	write := take
	for _, p := range places {
		if err := p.Put(ctx, res.Name, write); err != nil {
			all = append(all, fmt.Errorf("writing the backup to %s: %w", p, err))
			continue
		}
		res.Places = append(res.Places, p.String())
		write = func(to io.Writer) error {
			stored, err := p.Open(ctx, res.Name)
			if err != nil {
				return err
			}
			_, err = io.Copy(to, stored)
			return errors.Join(err, stored.Close())
		}
	}
	return all
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// entrusted is what the control machine has of a cluster.
func (s *site) entrusted() (m backup.Manifest, entries []backup.Entry, err error) {
	m, given, err1 := s.manifest()
	here, err2 := s.localFiles()
	return m, append([]backup.Entry{backup.Bytes(backup.ConfigName, given)}, here...), errors.Join(err1, err2)
}

// manifest says what cluster there is; given is its configuration.
func (s *site) manifest() (m backup.Manifest, given []byte, err error) {
	applied, err1 := s.records.Applied()
	id, err2 := s.cluster.Certs.RecordedID()
	if err := errors.Join(err1, err2); err != nil {
		return m, nil, err
	}
	was, err := config.Recorded(applied.Resolved) // not what the configuration says now
	if err != nil {
		return m, nil, err
	}
	is := config.ReleaseOf(&was.Spec)
	if runs, _ := s.cluster.Runs(); runs.Kubernetes != "" && runs.Etcd != "" { // a run may have been cut off on the way to another release
		is = runs
	}
	m = backup.Manifest{
		Cluster: s.config.Metadata.Name, ID: id, Taken: time.Now().UTC().Truncate(time.Second), Kubexm: s.app.Version,
		Kubernetes: is.Kubernetes, Etcd: is.Etcd, Prefix: strings.TrimSuffix(s.cluster.EtcdPrefix(), "/"), Endpoint: s.cluster.Endpoint(),
		Fixed: fixed(&was.Spec),
	}
	for _, h := range was.Spec.Hosts {
		host := backup.Host{Name: h.Name, Address: h.IP()}
		for _, r := range h.Roles {
			host.Roles = append(host.Roles, string(r))
		}
		m.Hosts = append(m.Hosts, host)
	}
	return m, applied.Given, nil
}

// localFiles are what the control machine has of the cluster.
func (s *site) localFiles() (entries []backup.Entry, err error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, name := range kept {
		err := fs.WalkDir(root.FS(), name, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() {
				return nil
			}
			var text []byte
			if err == nil {
				text, err = root.ReadFile(path)
			}
			entries = append(entries, backup.Bytes(path, text))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading what belongs to the cluster: %w", err)
		}
	}
	copied := filepath.Join(s.dir, "."+store.File+"-backup") // as safe as what is beside it
	if err := os.WriteFile(copied, nil, 0o600); err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() { _ = os.Remove(copied) })
	if err := s.records.Copy(copied); err != nil {
		return nil, err
	}
	db, err := os.Stat(copied)
	if err != nil {
		return nil, err
	}
	return append(entries, backup.Entry{Name: store.File, Size: db.Size(), Write: func(w io.Writer) error {
		f, err := os.Open(copied)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		return err
	}}), nil
}

// snapshot is that of etcd: from a member that is well, and that does not lead, where there is such a one.
func (s *site) snapshot(ctx context.Context, res *Backup) ([]backup.Entry, error) {
	if s.cluster.ExternalEtcd() {
		s.notice("warning: etcd is external: the backup is without its data; back that up, too, for example with etcdctl snapshot save")
		return nil, nil
	}
	res.From = etcdstep.SnapshotHost(s.cluster)
	if res.From == "" {
		return nil, fault.Advise(errors.New("no member of etcd is well: there is nothing to take a backup of"), "see what is wrong with them: kubexm status"+s.Which())
	}
	access := s.cluster.EtcdAccess(res.From)
	access.Dial = s.hosts[res.From].Dial
	client, err := etcd.New(access)
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, client.Close)
	stream, err := client.Stream(ctx)
	if err != nil {
		return nil, err
	}
	res.Etcd = stream.Size
	return []backup.Entry{{Name: backup.SnapshotName, Size: stream.Size, Write: func(w io.Writer) error {
		_, err := stream.WriteTo(w)
		return err
	}}}, nil
}

// recipients are those who can read a backup. That everybody can must be asked for.
func (w *work) recipients(b BackupOptions) ([]backup.Recipient, error) {
	given := b.Recipients
	if given == nil {
		given = w.config.Spec.Backup.Recipients
	}
	var err error
	switch {
	case b.Plain && b.Recipients != nil:
		err = errors.New("a backup that is not encrypted has no recipients")
	case b.Plain:
		w.notice("warning: the backup is not encrypted: who reads it has all keys and secrets of the cluster")
		return nil, nil
	case len(given) == 0:
		err = fault.Advise(errors.New("backups are encrypted, and nobody is named who could read them"),
			"make a key with: kubexm backup key --out recovery.key; keep it in a safe place, and name its public half in spec.backup.recipients")
	default:
		recipients, err := backup.Recipients(given)
		return recipients, fault.Exit(err, fault.ExitUsage)
	}
	return nil, fault.Exit(err, fault.ExitUsage)
}

// places are where backups are kept: directories that are given, else those of the configuration.
func (s *session) places(ctx context.Context, dirs []string) (all []place.Place, err error) {
	for _, d := range dirs {
		all = append(all, place.Dir(d))
	}
	if all != nil {
		return all, nil
	}
	conf, warnings, err := config.ResolveBackup(ctx, s.config, s.local)
	s.warn(warnings)
	if err != nil {
		return nil, err
	}
	servers, f := s.backupServers(conf), s.fleet()
	if f.acquaint(ctx, servers); f.unkept != nil {
		s.notice("warning: %v", f.unkept)
	}
	for _, t := range conf.Targets {
		var p place.Place
		switch {
		case t.SFTP != nil:
			p, servers = place.SFTP(servers[0], t.SFTP.Path), servers[1:]
		case t.S3 != nil:
			if p, err = bucket(t.S3); err != nil {
				return nil, fault.Exit(err, fault.ExitUsage)
			}
		default:
			p = place.Dir(t.Dir)
		}
		all = append(all, p)
	}
	return all, nil
}

func bucket(c *v1alpha1.BackupS3) (place.Place, error) {
	s3 := place.S3{Endpoint: c.Endpoint, Region: c.Region, Bucket: c.Bucket, Prefix: c.Prefix, AccessKey: c.AccessKey, SecretKey: c.SecretKey, VirtualHost: c.VirtualHost}
	if c.CAFile != "" {
		var err error
		if s3.CA, err = os.ReadFile(c.CAFile); err != nil {
			return nil, fmt.Errorf("reading spec.backup.targets[].s3.caFile: %w", err)
		}
	}
	return place.NewS3(s3)
}

func (s *session) keeps() place.Keep {
	k := s.config.Spec.Backup.Keep
	return place.Keep{Last: k.Last, Daily: k.Daily, Weekly: k.Weekly, Monthly: k.Monthly}
}

// prune removes backups that are not to be kept, and lists them.
func prune(ctx context.Context, places []place.Place, cluster string, keep place.Keep) (gone []string, err error) {
	for _, p := range places {
		all, err := p.List(ctx, cluster)
		if err != nil {
			return gone, fmt.Errorf("listing backups in %s: %w", p, err)
		}
		for _, o := range keep.Expired(all) {
			if err := p.Remove(ctx, o.Name); err != nil {
				return gone, fmt.Errorf("removing %s from %s: %w", o.Name, p, err)
			}
			gone = append(gone, p.String()+": "+o.Name)
		}
	}
	return gone, nil
}

// Stored is a backup in a place.
type Stored struct {
	Name  string    `json:"name"`
	Place string    `json:"place"`
	Taken time.Time `json:"taken"`
	Size  int64     `json:"size"` // bytes
}

// Backups lists the backups of a cluster, in given directories or else in the places of the configuration, the oldest first.
func (a *App) Backups(ctx context.Context, r Request, o Observer, dirs []string) ([]Stored, error) {
	s, err := a.open(ctx, r, o)
	if err != nil {
		return nil, err
	}
	places, err := s.places(ctx, dirs)
	all := []Stored{}
	for _, p := range places {
		list, wrong := p.List(ctx, s.config.Metadata.Name)
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("listing backups in %s: %w", p, wrong))
		}
		for _, o := range list {
			all = append(all, Stored{o.Name, p.String(), o.Taken, o.Size})
		}
	}
	slices.SortStableFunc(all, func(a, b Stored) int { return a.Taken.Compare(b.Taken) })
	return all, err
}

// PruneBackups removes backups that spec.backup.keep does not ask for, and lists them.
func (a *App) PruneBackups(ctx context.Context, r Request, o Observer, dirs []string) (gone []string, err error) {
	s, err := a.open(ctx, r, o)
	if err != nil {
		return nil, err
	}
	if s.keeps() == (place.Keep{}) {
		return nil, fault.Exit(fault.Advise(errors.New("all backups are to be kept"), "say in spec.backup.keep which ones are"), fault.ExitUsage)
	}
	places, err := s.places(ctx, dirs)
	if err != nil {
		return nil, err
	}
	return prune(ctx, places, s.config.Metadata.Name, s.keeps())
}
