package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kubexm/kubexm/pkg/util/durable"
)

// Stream is a snapshot that a member is about to send, in the format that etcdutl restores.
type Stream struct {
	Size int64 // bytes, with the SHA-256 of the rest at the end

	client *Client
	stream pb.Maintenance_SnapshotClient
	first  []byte
}

// Stream asks for a snapshot.
func (c *Client) Stream(ctx context.Context) (*Stream, error) {
	stream, err := clientv3.RetryMaintenanceClient(c.client, c.client.ActiveConnection()).Snapshot(ctx, &pb.SnapshotRequest{})
	if err != nil {
		return nil, c.explain("asking etcd for a snapshot", err)
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, c.explain("asking etcd for a snapshot", err)
	}
	// What remains is told without the sum (server/etcdserver/api/v3rpc/maintenance.go).
	return &Stream{int64(first.RemainingBytes) + int64(len(first.Blob)) + sha256.Size, c, stream, first.Blob}, nil
}

// WriteTo copies it. A snapshot that is not whole is an error.
func (s *Stream) WriteTo(w io.Writer) (n int64, err error) {
	check := summed{size: s.Size, hash: sha256.New()}
	for blob := s.first; ; {
		k, err := io.MultiWriter(&check, w).Write(blob)
		n += int64(k)
		if err != nil {
			return n, err
		}
		next, err := s.stream.Recv()
		if errors.Is(err, io.EOF) {
			return n, check.whole()
		}
		if err != nil {
			return n, s.client.explain("receiving a snapshot of etcd", err)
		}
		blob = next.Blob
	}
}

// summed is written what ends with the SHA-256 of the rest.
type summed struct {
	size, seen int64
	hash       hash.Hash // of the rest
	sum        []byte
}

func (s *summed) Write(p []byte) (int, error) {
	rest := min(int64(len(p)), max(0, s.size-sha256.Size-s.seen))
	s.hash.Write(p[:rest])
	s.sum = append(s.sum, p[rest:]...)
	s.seen += int64(len(p))
	if s.seen > s.size {
		return 0, fmt.Errorf("the snapshot of etcd has more than %d bytes", s.size)
	}
	return len(p), nil
}

// whole compares the checksum at the end of a snapshot. The database before it has whole pages
// (etcdutl/snapshot/v3_snapshot.go, hasChecksum).
func (s *summed) whole() error {
	const page = 512
	switch {
	case s.seen < page || s.seen != s.size || s.seen%page != sha256.Size:
		return fmt.Errorf("the snapshot of etcd was cut off: it has %d bytes", s.seen)
	case !bytes.Equal(s.sum, s.hash.Sum(nil)):
		return errors.New("the checksum of the snapshot of etcd is not that of its content")
	}
	return nil
}

// Snapshot writes what the member has to a file that only its owner may read, and returns its size in bytes. The
// file is there only when it is whole.
func (c *Client) Snapshot(ctx context.Context, path string) (size int64, err error) {
	stream, err := c.Stream(ctx)
	if err != nil {
		return 0, err
	}
	err = durable.Fill(path, func(f *os.File) error {
		size, err = stream.WriteTo(f)
		return err
	})
	if err != nil {
		return 0, err
	}
	return size, nil
}

// Salvage writes the database of a member that does not run to a file, as a snapshot: copy copies it. The file is there only when that was done.
func Salvage(path string, copy func(io.Writer) error) error {
	return durable.Fill(path, func(f *os.File) error {
		sum := sha256.New()
		if err := copy(io.MultiWriter(f, sum)); err != nil {
			return err
		}
		_, err := f.Write(sum.Sum(nil))
		return err
	})
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
	check := summed{size: info.Size(), hash: sha256.New()}
	if _, err := io.Copy(&check, f); err != nil {
		return err
	}
	return check.whole()
}
