package resource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry/remote"

	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Progress is told how many bytes of a download are there. total is -1 as long
// as it is not known. Calls do not overlap.
type Progress func(done, total int64)

// Fetch makes sure that the artifact is in the store and returns its path. A
// download that broke off, in this process or another, goes on where it stopped.
// progress may be nil.
func (s *Store) Fetch(ctx context.Context, a Artifact, progress Progress) (string, error) {
	a, err := s.Resolve(ctx, a)
	if err != nil {
		return "", err
	}
	c, err := find(a.Component)
	if err != nil {
		return "", err
	}
	path := s.path(a)
	if !sumIs(path, a.SHA256) {
		if s.source.Offline {
			return "", missing(a.String() + " is not in " + s.dir)
		}
		places, err := s.published(ctx, a, c)
		if err != nil {
			return "", fmt.Errorf("fetching %s: %w", a, err)
		}
		b := blob{places: places, path: path, sha256: a.SHA256, progress: progress}
		if err := s.download(ctx, b); err != nil {
			return "", fmt.Errorf("fetching %s: %w", a, err)
		}
	}
	return path, noteSum(ctx, path, a.SHA256)
}

// noteSum writes SHA256SUMS beside a file of the store, where it does not name the file.
func noteSum(ctx context.Context, file, sum string) error {
	dir, name := filepath.Split(file)
	if readSums(dir)[name] == sum {
		return nil
	}
	return replace(ctx, filepath.Join(dir, sumsFile), formatSums(map[string]string{name: sum}))
}

// file is where the store has a file of the given path, with slashes.
func (s *Store) file(key string) string { return filepath.Join(s.dir, filepath.FromSlash(key)) }

func (s *Store) path(a Artifact) string { return s.file(a.key()) }

// blob is one thing to download.
type blob struct {
	places   []place // in the order to try
	path     string
	sha256   string // empty: whatever comes
	progress Progress
}

// place is a URL, and what reaches it.
type place struct {
	source.Place
	client remote.Client
}

// places are where a file is fetched from, in the order to be tried.
func (s *Store) places(original string) (all []place) {
	for _, p := range s.source.Places(original) {
		all = append(all, place{p, s.source.HTTP(p.URL)})
	}
	return all
}

// download puts the blob at its path.
func (s *Store) download(ctx context.Context, b blob) error {
	c, err := claimFile(ctx, b.path)
	if err != nil {
		return err
	}
	defer c.release()
	if sumIs(b.path, b.sha256) { // another one fetched it meanwhile
		c.drop()
		return nil
	}
	err = source.Try(ctx, s.retry, b.places, func(p place) error {
		for {
			gained, err := s.transfer(ctx, b, c, p)
			if err == nil || gained <= 0 || !fault.IsTransient(err) || sleep(ctx, s.retry.Pause) != nil {
				return p.Explain(err)
			}
		}
	})
	if err != nil {
		return err
	}
	os.Remove(originPath(c))
	if err := c.commit(); err != nil {
		return err
	}
	if b.sha256 != "" {
		remember(filepath.Dir(b.path), map[string]string{filepath.Base(b.path): b.sha256})
	}
	return nil
}

// transfer downloads from one place what the claim's file still lacks and
// checks the whole. It returns by how much the file grew.
func (s *Store) transfer(ctx context.Context, b blob, c *claim, from place) (int64, error) {
	place := from.URL
	h := sha256.New()
	had, err := io.Copy(h, io.NewSectionReader(c, 0, math.MaxInt64))
	if err != nil {
		return 0, err
	}
	if had > 0 && hexSum(h) == b.sha256 {
		return 0, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(s.retry.Stall, func() { cancel(source.ErrStalled) })
	defer watchdog.Stop()
	resp, err := source.Get(ctx, from.client, place, resume(c, place, had, b.sha256 != ""))
	if answer, ok := errors.AsType[*source.StatusError](err); ok && answer.Code == http.StatusRequestedRangeNotSatisfiable { // the part is too long
		return 0, errors.Join(c.Truncate(0), fault.Transient(err))
	}
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	start, total := extent(resp)
	switch start {
	case had:
	case 0: // the whole: the server knows no ranges, or the file has changed
		h.Reset()
	default:
		return 0, fmt.Errorf("GET %s: asked for bytes from %d, got them from %d", source.Redacted(place), had, start)
	}
	if err := begin(c, place, resp, start, total); err != nil {
		return 0, err
	}
	if err := CheckSpace(filepath.Dir(b.path), total-start); err != nil {
		return 0, err
	}
	w := &sink{file: c, hash: h, done: start, total: total, progress: b.progress, alive: func() { watchdog.Reset(s.retry.Stall) }}
	if _, err := io.CopyBuffer(w, resp.Body, make([]byte, 256<<10)); err != nil {
		return w.done - had, w.explain(ctx, err, place, filepath.Dir(b.path))
	}
	return w.done - had, s.judge(b, c, place, hexSum(h), start > 0)
}

// judge says whether a completed download is right, and throws it away if not.
func (s *Store) judge(b blob, c *claim, place, got string, resumed bool) error {
	if got == b.sha256 || b.sha256 == "" {
		return nil
	}
	os.Remove(originPath(c))
	if err := c.Truncate(0); err != nil {
		return err
	}
	if resumed { // the part from before may be what is wrong
		return fault.Transient(fmt.Errorf("GET %s: the rest does not fit the part that was there", source.Redacted(place)))
	}
	return fault.Advise(fmt.Errorf("GET %s: wrong checksum: got SHA-256 %s, want %s; the file was deleted", source.Redacted(place), got, b.sha256),
		"ask who runs that server; if upstream really replaced the file, delete its entry in "+s.lockPath())
}

// origin says, in a file beside it, what a part is a part of.
type origin struct {
	URL     string `json:"url"`
	Version string `json:"version"` // ETag or Last-Modified
	Size    int64  `json:"size"`    // of the whole, -1 if not known
}

func originPath(c *claim) string { return c.Name() + ".origin" }

// resume returns the headers that ask for the bytes from had on, from the same
// server only if its file is still the same. From others too, where the checksum of
// the whole is the judge.
func resume(c *claim, place string, had int64, judged bool) http.Header {
	var from origin
	text, err := os.ReadFile(originPath(c))
	if had == 0 || err != nil || json.Unmarshal(text, &from) != nil || from.Size >= 0 && had >= from.Size {
		return nil
	}
	h := http.Header{"Range": {fmt.Sprintf("bytes=%d-", had)}}
	if from.Size >= 0 { // some registries only know this form
		h.Set("Range", fmt.Sprintf("bytes=%d-%d", had, from.Size-1))
	}
	switch {
	case from.URL == source.Redacted(place) && from.Version != "":
		h.Set("If-Range", from.Version)
	case !judged:
		return nil
	}
	return h
}

// begin readies the part for bytes from start on.
func begin(c *claim, place string, resp *http.Response, start, total int64) error {
	if err := c.Truncate(start); err != nil {
		return err
	}
	if _, err := c.Seek(start, io.SeekStart); err != nil {
		return err
	}
	version := resp.Header.Get("ETag")
	if version == "" || strings.HasPrefix(version, "W/") { // If-Range takes no weak ETag (RFC 9110, 13.1.5)
		version = resp.Header.Get("Last-Modified")
	}
	text, err := json.Marshal(origin{source.Redacted(place), version, total})
	if err != nil {
		return err
	}
	return os.WriteFile(originPath(c), text, 0o644)
}

// extent returns where the bytes of an answer start in the file, and the size of the file or -1.
func extent(resp *http.Response) (start, total int64) {
	if resp.StatusCode != http.StatusPartialContent {
		return 0, resp.ContentLength
	}
	var end int64
	if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &start, &end, &total); err != nil {
		return start, -1
	}
	return start, total
}

// sink takes the bytes of a download.
type sink struct {
	file        io.Writer
	hash        hash.Hash
	done, total int64
	progress    Progress
	alive       func()
	err         error // of the disk, not of the network
}

func (w *sink) Write(p []byte) (int, error) {
	w.alive()
	n, err := w.file.Write(p)
	w.err = err
	w.hash.Write(p[:n])
	w.done += int64(n)
	if w.progress != nil {
		w.progress(w.done, w.total)
	}
	return n, err
}

// explain says of an interrupted copy what interrupted it.
func (w *sink) explain(ctx context.Context, err error, place, dir string) error {
	if w.err != nil {
		return explainSpace(fmt.Errorf("at byte %d%s: %w", w.done, source.Of(w.total), err), dir, largerStore)
	}
	return fmt.Errorf("GET %s: broke off at byte %d%s: %w", source.Redacted(place), w.done, source.Of(w.total), source.Cause(ctx, err))
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
