// Package place holds where backups are kept: directories of this machine or of servers that speak SFTP, and buckets of S3.
package place

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Place is where backups are kept.
type Place interface {
	// Stringer names it as a user does: "/var/backups/kubexm", "s3://bucket/prefix", "sftp://user@host:22/path".
	fmt.Stringer

	// Put stores what write gives as name. It is there only when write has returned nil and all was
	// stored; an object of that name is replaced. Memory is bounded whatever the size.
	Put(ctx context.Context, name string, write func(io.Writer) error) error

	// Open reads one. Where there is none, the error is fs.ErrNotExist.
	Open(ctx context.Context, name string) (io.ReadCloser, error)

	// List lists objects whose names Name made for the cluster, oldest first; others' files are ignored.
	List(ctx context.Context, cluster string) ([]Object, error)

	// Remove removes one. That it is not there is no error.
	Remove(ctx context.Context, name string) error
}

// Object is one backup.
type Object struct {
	Name  string
	Taken time.Time // as the name says, in UTC
	Size  int64     // bytes
}

const (
	stamp     = "20060102T150405Z"
	packed    = ".tar.zst"
	encrypted = ".age"
)

// Name is the name of the backup of a cluster that is taken at a time: "prod-20261125T130501Z.tar.zst.age"; one that is not encrypted has no ".age".
func Name(cluster string, taken time.Time, encrypt bool) string {
	name := cluster + "-" + taken.UTC().Format(stamp) + packed
	if encrypt {
		name += encrypted
	}
	return name
}

// parse is the reverse of Name. The names of other clusters are none, also of those whose names begin alike.
func parse(cluster, name string) (taken time.Time, ok bool) {
	rest, ours := strings.CutPrefix(name, cluster+"-")
	rest, isPacked := strings.CutSuffix(strings.TrimSuffix(rest, encrypted), packed)
	if !ours || !isPacked {
		return time.Time{}, false
	}
	taken, err := time.Parse(stamp, rest)
	return taken, err == nil && taken.Format(stamp) == rest // Parse also takes fractions of a second
}

// plain refuses names that lead elsewhere: a user may give one.
func plain(name string) error {
	if name == "" || name[0] == '.' || strings.ContainsAny(name, "/\\\x00") {
		return fault.Advise(fmt.Errorf("%q is no name of a backup", name), "give the name alone, as the list of backups has it")
	}
	return nil
}

// sorted puts the oldest first.
func sorted(all []Object) []Object {
	slices.SortFunc(all, func(a, b Object) int { return cmp.Or(a.Taken.Compare(b.Taken), strings.Compare(a.Name, b.Name)) })
	return all
}

type (
	writer func([]byte) (int, error)
	reader func([]byte) (int, error)
	closer func() error
)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func (r reader) Read(p []byte) (int, error) { return r(p) }

func (c closer) Close() error { return c() }

// reading is what Open returns: what is read, and what is to be closed.
type reading struct {
	io.Reader
	io.Closer
}
