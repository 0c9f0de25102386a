package etcd_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/kubexm/kubexm/pkg/etcd"
)

// database is one of etcd with changes: a key, and its value; none: it is removed.
func database(t *testing.T, changes ...[2]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "etcd.db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("key"))
		for i, c := range changes {
			revision := binary.BigEndian.AppendUint64(nil, uint64(i+2))
			revision = binary.BigEndian.AppendUint64(append(revision, '_'), 0)
			if c[1] == "" {
				revision = append(revision, 't')
			}
			value, failed := proto.Marshal(&mvccpb.KeyValue{Key: []byte(c[0]), Value: []byte(c[1])})
			if failed != nil {
				return failed
			}
			if err == nil {
				err = b.Put(revision, value)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestContents reads the last value of each key that is there.
func TestContents(t *testing.T) {
	c, err := etcd.Open(database(t,
		[2]string{"/registry/pods/default/web", "old"}, [2]string{"/registry/pods/default/gone", "x"}, [2]string{"/registry/minions/node1", "n"},
		[2]string{"/registry/pods/default/gone", ""}, [2]string{"/registry/pods/default/web", "new"}, [2]string{"/registry/services/specs/default/kubernetes", "s"},
		[2]string{"/registry/example.org/widgets/team/one", "w"}, [2]string{"/registry/apiregistration.k8s.io/apiservices/v1.apps", "a"}, [2]string{"/registry/health", "ok"}, [2]string{"/elsewhere/pods/x/y", "z"},
		[2]string{"/registry/services/endpoints/default/kubernetes", "e"}, [2]string{"/registry/namespaces/default", "d"},
	))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Revision != 13 || len(c.Keys) != 9 {
		t.Errorf("revision %d, keys %q", c.Revision, c.Keys)
	}
	if v, err := c.Value("/registry/pods/default/web"); string(v) != "new" || err != nil {
		t.Errorf("the value is %q, %v", v, err)
	}
	if v, err := c.Value("/registry/pods/default/gone"); v != nil || err != nil {
		t.Errorf("what was removed is %q, %v", v, err)
	}
	var all []string
	for _, o := range c.Objects("/registry") {
		all = append(all, o.String())
	}
	want := []string{
		"apiservices.apiregistration.k8s.io/v1.apps", "widgets.example.org/team/one", "nodes/node1", "namespaces/default", "pods/default/web",
		"endpoints/default/kubernetes", "services/default/kubernetes",
	}
	slices.Sort(all)
	slices.Sort(want)
	if !slices.Equal(all, want) {
		t.Errorf("objects are %q, want %q", all, want)
	}
}

// TestNoContents refuses what is no data of etcd.
func TestNoContents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.db")
	db, err := bbolt.Open(empty, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, empty, filepath.Join(t.TempDir(), "missing")} {
		if c, err := etcd.Open(p); err == nil {
			t.Errorf("%s has %d keys", p, len(c.Keys))
		}
	}
}
