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
	"path"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Resolve returns the artifact with its checksum: the one it has, else the one
// pinned in this program, else the one in the lock file, else the published
// one, which then goes into the lock file, with its signature where it has one.
func (s *Store) Resolve(ctx context.Context, a Artifact) (Artifact, error) {
	a, owed, err := s.known(a)
	if err != nil || a.SHA256 != "" && !owed {
		return a, err
	}
	if s.source.Offline {
		what := " has no checksum in "
		if owed {
			what = " has no signature, as spec.source.requireSignatures asks for, in "
		}
		return a, missing(a.String() + what + s.lockPath())
	}
	c, err := find(a.Component)
	if err != nil {
		return a, err
	}
	f := lockedFile{SHA256: a.SHA256, From: s.lockPath()}
	var at source.Place
	if f.SHA256 == "" {
		if f.SHA256, at, err = s.findSum(ctx, a, c); err != nil {
			return a, fmt.Errorf("finding the checksum of %s: %w", a, err)
		}
		f.From = source.Redacted(at.URL)
	}
	if f.proof, err = s.prove(ctx, a, c, f, at); err != nil {
		return a, err
	}
	err = s.editLock(ctx, func(l *lock) error {
		l.add(a.key(), f)
		a.SHA256 = l.Files[a.key()].SHA256
		return nil
	})
	return a, err
}

// findSum reads the checksum of an artifact where it is published, and says where that is.
func (s *Store) findSum(ctx context.Context, a Artifact, c Component) (sum string, at source.Place, err error) {
	switch c.Sums {
	case "":
		return s.firstSum(ctx, a, c)
	case listing:
		sum, _, at, err = s.listed(ctx, a, c)
		return sum, at, err
	case layer:
		return s.layerSum(ctx, a, c)
	}
	err = askAll(ctx, s, s.source.SumPlaces(a.expand(c.SumsURL())), func(p source.Place) source.Place { return p }, func(ctx context.Context, place source.Place) error {
		text, err := s.text(ctx, place.URL)
		if at, sum = place, parseSum(text, a.File); err == nil && sum == "" {
			err = fmt.Errorf("GET %s: %w of %s in the answer", source.Redacted(place.URL), errNoSum, a.File)
		}
		return err
	})
	return sum, at, err
}

// firstSum fetches an artifact of which nobody publishes a checksum, from who could: what comes the first time is what it is from then on.
func (s *Store) firstSum(ctx context.Context, a Artifact, c Component) (sum string, at source.Place, err error) {
	there := func(ctx context.Context, p source.Place) error {
		at = p
		resp, err := source.Get(ctx, s.source.HTTP(p.URL), p.URL, nil)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := askAll(ctx, s, s.source.SumPlaces(a.expand(c.Base+c.File)), func(p source.Place) source.Place { return p }, there); err != nil {
		return "", at, err
	}
	if err := s.download(ctx, blob{places: []place{{at, s.source.HTTP(at.URL)}}, path: s.path(a)}); err != nil {
		return "", at, err
	}
	sum, err = hashFile(s.path(a))
	return sum, at, err
}

// askAll asks one after the other, as of source.Config.SumPlaces. As long as the publisher answers, whatever it says, no mirror of a zone speaks for it.
func askAll[T any](ctx context.Context, s *Store, all []T, where func(T) source.Place, ask func(ctx context.Context, at T) error) error {
	var said error // by the publisher
	err := source.Try(ctx, s.retry, all, func(at T) error {
		place := where(at)
		if said != nil && place.Zone() {
			return said
		}
		replaceable := place.Original() && place != where(all[len(all)-1])
		err := s.askAt(ctx, place, replaceable, func(ctx context.Context) error { return ask(ctx, at) })
		if said = nil; replaceable && (source.Answered(err) || errors.Is(err, errNoSum)) {
			said = fault.AdviseMore(place.Explain(err), "to trust a mirror instead, name it in spec.source.mirrors")
			return said
		}
		return place.Explain(err)
	})
	return cmp.Or(said, err)
}

// known returns the artifact with the checksum that can be told without the network, if any. It owes a signature
// where one is required and the lock has none.
func (s *Store) known(a Artifact) (_ Artifact, owed bool, err error) {
	if a.SHA256 != "" {
		return a, false, nil
	}
	pins, err := pins()
	if err != nil {
		return a, false, err
	}
	l, err := s.readLock()
	if err != nil {
		return a, false, err
	}
	if a.SHA256 = pins.Files[a.key()].SHA256; a.SHA256 != "" {
		return a, false, nil
	}
	f := l.Files[a.key()]
	a.SHA256 = f.SHA256
	return a, s.source.Signed && a.SHA256 != "" && f.Signature == "" && signer(a.key()) != plugin.Signer{}, nil
}

var errNoSum = errors.New("no SHA-256")

// patience is how long a publisher may take to answer where a mirror can.
const patience = 5 * time.Second

// textAt reads a text at a place.
func (s *Store) textAt(ctx context.Context, at source.Place, replaceable bool) (text string, err error) {
	err = s.askAt(ctx, at, replaceable, func(ctx context.Context) error {
		text, err = s.text(ctx, at.URL)
		return err
	})
	return text, err
}

// askAt asks for something at a place. A publisher that a mirror stands in for is not waited for long, and once only.
func (s *Store) askAt(ctx context.Context, at source.Place, replaceable bool, ask func(ctx context.Context) error) error {
	if !replaceable {
		return ask(ctx)
	}
	_, server, found := strings.Cut(at.URL, "://")
	if !found { // of an image
		server = at.URL
	}
	server, _, _ = strings.Cut(server, "/")
	if _, is := s.silent.Load(server); is {
		return fmt.Errorf("GET %s: it did not answer before", source.Redacted(at.URL))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, source.ErrStalled)
	defer cancel()
	err := ask(ctx)
	if away := net.Error(nil); errors.As(err, &away) || errors.Is(err, source.ErrStalled) { // it cannot be reached
		s.silent.Store(server, true)
	}
	return err
}

// text reads the text at a URL: a line, or the index of a repository.
func (s *Store) text(ctx context.Context, at string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.retry.Stall, source.ErrStalled)
	defer cancel()
	resp, err := source.Get(ctx, s.source.HTTP(at), at, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return "", fmt.Errorf("GET %s: %w", source.Redacted(at), source.Cause(ctx, err))
	}
	return string(text), nil
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
