package resource

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Resolve returns the artifact with its checksum: the one it has, else the one
// pinned in this program, else the one in the lock file, else the published
// one, which then goes into the lock file.
func (s *Store) Resolve(ctx context.Context, a Artifact) (Artifact, error) {
	a, err := s.known(a)
	if err != nil || a.SHA256 != "" {
		return a, err
	}
	if s.source.Offline {
		return a, missing(a.String() + " has no checksum in " + s.lockPath())
	}
	c, err := find(a.Component)
	if err != nil {
		return a, err
	}
	var sum, from string
	places := s.source.SumPlaces(a.expand(c.SumsURL()))
	var denied error // by the publisher: nobody else may say it then
	err = source.Try(ctx, s.retry, places, func(place source.Place) (err error) {
		if denied != nil {
			return denied
		}
		first := place.Original() && place != places[len(places)-1]
		sum, err = s.sumAt(ctx, place, first, a.File)
		from = source.Redacted(place.URL)
		if err = place.Explain(err); first && (source.Missing(err) || errors.Is(err, errNoSum)) {
			denied = err
		}
		return err
	})
	err = cmp.Or(denied, err)
	if err != nil {
		return a, fmt.Errorf("finding the checksum of %s: %w", a, err)
	}
	err = s.editLock(ctx, func(l *lock) error {
		if _, taken := l.Files[a.key()]; !taken {
			l.Files[a.key()] = lockedFile{SHA256: sum, From: from}
		}
		a.SHA256 = l.Files[a.key()].SHA256
		return nil
	})
	return a, err
}

// known returns the artifact with the checksum that can be told without the network, if any.
func (s *Store) known(a Artifact) (Artifact, error) {
	if a.SHA256 != "" {
		return a, nil
	}
	pins, err := pins()
	if err != nil {
		return a, err
	}
	l, err := s.readLock()
	if err != nil {
		return a, err
	}
	if a.SHA256 = pins.Files[a.key()].SHA256; a.SHA256 == "" {
		a.SHA256 = l.Files[a.key()].SHA256
	}
	return a, nil
}

var errNoSum = errors.New("no SHA-256")

// patience is how long a publisher may take to answer where a mirror can.
const patience = 5 * time.Second

// sumAt reads a checksum at a place. A publisher that a mirror stands in for is not waited for long, and once only.
func (s *Store) sumAt(ctx context.Context, at source.Place, replaceable bool, file string) (string, error) {
	if !replaceable {
		return s.published(ctx, at.URL, file)
	}
	u, err := url.Parse(at.URL)
	if err != nil {
		return "", err
	}
	if _, is := s.silent.Load(u.Host); is {
		return "", fmt.Errorf("GET %s: it did not answer before", source.Redacted(at.URL))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, source.ErrStalled)
	defer cancel()
	sum, err := s.published(ctx, at.URL, file)
	if away := net.Error(nil); errors.As(err, &away) || errors.Is(err, source.ErrStalled) { // it cannot be reached
		s.silent.Store(u.Host, true)
	}
	return sum, err
}

// published reads the SHA-256 of file from the checksum file at a URL.
func (s *Store) published(ctx context.Context, at, file string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.retry.Stall, source.ErrStalled)
	defer cancel()
	resp, err := source.Get(ctx, s.source.HTTP(at), at, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", fmt.Errorf("GET %s: %w", source.Redacted(at), source.Cause(ctx, err))
	}
	if sum := parseSum(string(text), file); sum != "" {
		return sum, nil
	}
	return "", fmt.Errorf("GET %s: %w of %s in the answer", source.Redacted(at), errNoSum, file)
}

// parseSum finds the SHA-256 of file in a text that is a bare sum, has lines as of sha256sum, or is what GitHub's API says of a release.
func parseSum(text, file string) string {
	if bare := strings.Fields(text); len(bare) == 1 && isSum(bare[0]) {
		return strings.ToLower(bare[0])
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 2 && isSum(f[0]) && path.Base(strings.TrimPrefix(f[1], "*")) == file {
			return strings.ToLower(f[0])
		}
	}
	var release struct {
		Assets []struct{ Name, Digest string }
	}
	_ = json.Unmarshal([]byte(text), &release) // what is no JSON has no assets
	for _, a := range release.Assets {
		if sum, ok := strings.CutPrefix(a.Digest, "sha256:"); ok && a.Name == file && isSum(sum) {
			return strings.ToLower(sum)
		}
	}
	return ""
}

func isSum(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size
}

func missing(what string) error {
	return fault.Advise(fmt.Errorf("%s, and the source is offline", what),
		"run 'kubexm download' on a machine with internet and bring the result with 'kubexm import'")
}
