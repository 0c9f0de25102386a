package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kubexm/kubexm/pkg/util/durable"
)

// Snapshot writes what the member has to a file that only its owner may read, in the format that etcdutl restores, and returns its size in bytes. The
// file is there only when it is whole: a member sends the SHA-256 of the rest at the end.
func (c *Client) Snapshot(ctx context.Context, path string) (size int64, err error) {
	stream, err := c.client.Snapshot(ctx)
	if err != nil {
		return 0, c.explain("asking etcd for a snapshot", err)
	}
	defer stream.Close()
	err = durable.Fill(path, func(f *os.File) error {
		if size, err = io.Copy(f, stream); err != nil {
			return c.explain("receiving a snapshot of etcd", err)
		}
		return whole(f, size)
	})
	if err != nil {
		return 0, err
	}
	return size, nil
}

// Whole checks a file that Snapshot has written.
func Whole(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return whole(f, info.Size())
}

// whole compares the checksum at the end of a snapshot. The database before it has whole pages
// (etcdutl/snapshot/v3_snapshot.go, hasChecksum).
func whole(f *os.File, size int64) error {
	const page = 512
	if size < page || size%page != sha256.Size {
		return fmt.Errorf("the snapshot of etcd was cut off: it has %d bytes", size)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	hash := sha256.New()
	if _, err := io.CopyN(hash, f, size-sha256.Size); err != nil {
		return err
	}
	sum, err := io.ReadAll(f)
	if err == nil && !bytes.Equal(sum, hash.Sum(nil)) {
		err = errors.New("the checksum of the snapshot of etcd is not that of its content")
	}
	return err
}
