package resource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"

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
	err = source.Try(ctx, s.retry, s.source.Places(a.expand(c.SumsURL())), func(place source.Place) (err error) {
		sum, err = s.published(ctx, place.URL, a.File)
		from = source.Redacted(place.URL)
		return place.Explain(err)
	})
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

// published reads the SHA-256 of file from the checksum file at a URL.
func (s *Store) published(ctx context.Context, url, file string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.retry.Stall, source.ErrStalled)
	defer cancel()
	resp, err := source.Get(ctx, s.source.HTTP(url), url, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", fmt.Errorf("GET %s: %w", source.Redacted(url), source.Cause(ctx, err))
	}
	if sum := parseSum(string(text), file); sum != "" {
		return sum, nil
	}
	return "", fmt.Errorf("GET %s: no SHA-256 of %s in the answer", source.Redacted(url), file)
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
