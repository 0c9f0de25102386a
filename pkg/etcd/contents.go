package etcd

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// Contents is what a snapshot of etcd has. Close it.
type Contents struct {
	Revision int64    // of the last change
	Keys     []string // that are there, sorted

	db *bbolt.DB
	at map[string][]byte // by key: where its last value is
}

// Open reads a snapshot, without an etcd. That it is whole is for Whole to say.
func Open(path string) (*Contents, error) {
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && errors.Is(err, bolterrors.ErrInvalid) {
			err = errors.New("it is no database of etcd")
		}
		return nil, fmt.Errorf("opening the snapshot of etcd: %w", err)
	}
	c := &Contents{db: db, at: map[string][]byte{}}
	if err := db.View(c.index); err != nil {
		return nil, errors.Join(fmt.Errorf("reading the snapshot of etcd: %w", err), db.Close())
	}
	c.Keys = slices.Sorted(maps.Keys(c.at))
	return c, nil
}

// The changes of etcd, in their order: each is named by its revision, eight bytes and "_" and eight more, and "t" where it removes a key
// (server/storage/mvcc/revision.go).
var changes = []byte("key")

const revisionBytes = 17

func (c *Contents) index(tx *bbolt.Tx) error {
	b := tx.Bucket(changes)
	if b == nil {
		return errors.New("it is no database of etcd: it has no keys")
	}
	return b.ForEach(func(revision, value []byte) error {
		if len(revision) < revisionBytes {
			return fmt.Errorf("a revision has %d bytes", len(revision))
		}
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(value, &kv); err != nil {
			return err
		}
		c.Revision = max(c.Revision, int64(binary.BigEndian.Uint64(revision)))
		if len(revision) > revisionBytes {
			delete(c.at, string(kv.Key))
		} else {
			c.at[string(kv.Key)] = bytes.Clone(revision)
		}
		return nil
	})
}

// Value returns what a key has; nil: it is not there.
func (c *Contents) Value(key string) (value []byte, err error) {
	at, ok := c.at[key]
	if !ok {
		return nil, nil
	}
	err = c.db.View(func(tx *bbolt.Tx) error {
		var kv mvccpb.KeyValue
		err := proto.Unmarshal(tx.Bucket(changes).Get(at), &kv)
		value = kv.Value
		return err
	})
	return value, err
}

// Close ends the use of the file.
func (c *Contents) Close() error { return c.db.Close() }

// Object is an object of Kubernetes, as etcd stores it.
type Object struct {
	Key       string `json:"key"`
	Resource  string `json:"resource"` // "pods", or with its group "widgets.example.org"
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is the object in the words of its users: "deployments/default/web", "nodes/node1".
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Resource + "/" + o.Name
	}
	return o.Resource + "/" + o.Namespace + "/" + o.Name
}

// oldNames are those that resources have in etcd and nowhere else (pkg/kubeapiserver/default_storage_factory_builder.go, SpecialDefaultResourcePrefixes).
var oldNames = map[string]string{"minions": "nodes", "services/specs": "services", "services/endpoints": "endpoints"}

// Objects lists the objects of Kubernetes below a prefix, like "/registry", sorted by their keys.
func (c *Contents) Objects(prefix string) (all []Object) {
	for _, key := range c.Keys {
		rest, ok := strings.CutPrefix(key, prefix+"/")
		if !ok {
			continue
		}
		parts := strings.Split(rest, "/")
		o := Object{Key: key, Resource: parts[0]}
		parts = parts[1:]
		switch {
		case o.Resource == "services" && len(parts) > 1:
			o.Resource, parts = oldNames["services/"+parts[0]], parts[1:]
		case strings.Contains(o.Resource, ".") && len(parts) > 1: // a group
			o.Resource, parts = parts[0]+"."+o.Resource, parts[1:]
		}
		o.Resource = cmp.Or(oldNames[o.Resource], o.Resource)
		switch len(parts) {
		case 0:
			continue
		case 1:
			o.Name = parts[0]
		default:
			o.Namespace, o.Name = parts[0], strings.Join(parts[1:], "/")
		}
		all = append(all, o)
	}
	return all
}
