// Package registry is the client of a private image registry, one of Harbor among them.
package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// Private is a registry that kubexm brings images to. A step may hold one: what is secret does not marshal.
type Private struct {
	Name     string // what references to its images begin with: registry.example.com:5000
	Address  string // where it listens: 10.0.0.21:5000
	CA       []byte `json:"-"` // PEM, of the authority that signed its certificate
	User     string
	Password secret.Secret `json:"-"`
	Kind     string        `json:",omitempty"` // spec.registry.type
	Unit     string        `json:"-"`          // of systemd, on its host

	Dial func(ctx context.Context, network, address string) (net.Conn, error) `json:"-"` // nil: from this machine
}

// RepositoryName is where a registry that has images of others has those of a registry, or a
// repository: registry.k8s.io/pause. No colon can be in there.
func RepositoryName(name string) string { return strings.ReplaceAll(name, ":", "_") }

// place is the reference of an image in the registry.
func (r Private) place(ref string) (registry.Reference, error) {
	from, err := registry.ParseReference(ref)
	if err == nil && from.Reference == "" {
		err = errors.New("missing tag or digest")
	}
	if err != nil {
		return from, fault.Advise(fmt.Errorf("image %s: %w", ref, err), "image references have the form registry.example.org/name:tag")
	}
	return registry.Reference{Registry: r.Name, Repository: RepositoryName(from.Registry + "/" + from.Repository), Reference: from.Reference}, nil
}

// atATime is how many requests a registry gets side by side.
const atATime = 8

// Client is connections to a registry, which Close ends.
type Client struct {
	http     *http.Client
	registry Private
}

// Do sends a request. The registry wants to know who calls: it is told at once.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	req.SetBasicAuth(c.registry.User, c.registry.Password.Reveal())
	return c.http.Do(req)
}

// Close ends the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Connect prepares connections: none is made yet.
func (r Private) Connect() *Client {
	dial := r.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.CA)
	t := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: 2 * time.Minute, MaxIdleConnsPerHost: atATime,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, r.Address) },
	}
	return &Client{&http.Client{Transport: t}, r}
}

// all is the registry as a whole.
func (c *Client) all() *remote.Registry {
	return &remote.Registry{RepositoryOptions: remote.RepositoryOptions{Client: c, Reference: registry.Reference{Registry: c.registry.Name}}}
}

// Repository is where the registry has an image, whose reference elsewhere is ref, and what that is here: its Reference.
// In Harbor the project of it is made, if there is none.
func (c *Client) Repository(ctx context.Context, ref string) (*remote.Repository, error) {
	place, err := c.registry.place(ref)
	if err == nil {
		err = c.makeProject(ctx, place)
	}
	if err != nil {
		return nil, err
	}
	return c.repository(place), nil
}

func (c *Client) repository(place registry.Reference) *remote.Repository {
	return &remote.Repository{Client: c, Reference: place}
}

// Ping asks whether the registry answers, and knows the user; and whether all parts of Harbor are well.
func (r Private) Ping(ctx context.Context) error {
	c := r.Connect()
	defer c.Close()
	err := c.all().Ping(ctx)
	if err == nil && r.harbor() {
		err = c.healthy(ctx)
	}
	return r.Explain(err)
}

// Explain says what to do about an error of the registry. One of the way there may pass (fault.Transient).
func (r Private) Explain(err error) error {
	var refused *errcode.ErrorResponse
	var broken *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden):
		advice := "run kubexm create cluster again: it brings the registry's users to what the configuration says"
		if r.harbor() {
			advice = "Harbor keeps the password that it had when it first started, or was given since on its web page: give that one in spec.registry.auth"
		}
		return fault.Advise(fmt.Errorf("registry %s refuses user %s: %w", r.Name, r.User, err), advice)
	case errors.As(err, &broken), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Transient(fault.Advise(fmt.Errorf("registry %s: %w", r.Name, err), "check on its host that it runs: journalctl -u "+r.Unit))
	}
	return fmt.Errorf("registry %s: %w", r.Name, err)
}

// Tagged is an image in a registry.
type Tagged struct {
	Repository string   `json:"repository"`
	Tag        string   `json:"tag"`
	Digest     string   `json:"digest"`          // of its manifest, or of the index of several
	Archs      []string `json:"archs,omitempty"` // of an index
	Size       int64    `json:"size"`            // bytes of all that it consists of, some of which other images may share
}

// List returns the images that are in the registry, by name.
func (r Private) List(ctx context.Context) ([]Tagged, error) {
	c := r.Connect()
	defer c.Close()
	var mu sync.Mutex
	found := []Tagged{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atATime)
	look := func(repo *remote.Repository, tag string) error {
		t, err := inspect(ctx, repo, tag)
		mu.Lock()
		defer mu.Unlock()
		found = append(found, t)
		return err
	}
	err := c.all().Repositories(ctx, "", func(names []string) error {
		for _, name := range names {
			repo := c.repository(registry.Reference{Registry: r.Name, Repository: name})
			err := repo.Tags(ctx, "", func(tags []string) error {
				for _, tag := range tags {
					g.Go(func() error { return look(repo, tag) })
				}
				return nil
			})
			if err != nil && !errors.Is(err, errdef.ErrNotFound) { // its tags may all be gone
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, g.Wait()); err != nil {
		return nil, r.Explain(err)
	}
	slices.SortFunc(found, func(a, b Tagged) int { return strings.Compare(a.Repository+":"+a.Tag, b.Repository+":"+b.Tag) })
	return found, nil
}

// Digests returns what the tags of images mean in the registry, by their references elsewhere: each the digest of a manifest,
// or of the index of several. Those that it does not have are not among them.
func (r Private) Digests(ctx context.Context, refs ...string) (map[string]digest.Digest, error) {
	c := r.Connect()
	defer c.Close()
	found := make([]digest.Digest, len(refs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atATime)
	for i, ref := range refs {
		g.Go(func() (err error) {
			found[i], err = c.digest(ctx, ref)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, r.Explain(err)
	}
	all := map[string]digest.Digest{}
	for i, ref := range refs {
		if found[i] != "" {
			all[ref] = found[i]
		}
	}
	return all, nil
}

// digest is what the tag of an image means; empty: the registry does not have it.
func (c *Client) digest(ctx context.Context, ref string) (digest.Digest, error) {
	place, err := c.registry.place(ref)
	if err != nil {
		return "", err
	}
	if there, err := c.hasProject(ctx, place); err != nil || !there {
		return "", err
	}
	have, err := c.repository(place).Resolve(ctx, place.Reference)
	if errors.Is(err, errdef.ErrNotFound) {
		return "", nil
	}
	return have.Digest, err
}

// inspect looks at an image in a repository.
func inspect(ctx context.Context, repo *remote.Repository, tag string) (Tagged, error) {
	t := Tagged{Repository: repo.Reference.Repository, Tag: tag}
	top, err := repo.Resolve(ctx, tag)
	if err != nil {
		return t, err
	}
	t.Digest = top.Digest.String()
	parts, err := Tree(ctx, repo, top)
	for _, d := range parts {
		t.Size += d.Size
		if d.Platform != nil {
			t.Archs = append(t.Archs, d.Platform.Architecture)
		}
	}
	slices.Sort(t.Archs)
	return t, err
}

// Tree lists a manifest, or an index, with all below it, each once.
func Tree(ctx context.Context, from content.Fetcher, top ocispec.Descriptor) (all []ocispec.Descriptor, err error) {
	seen := map[digest.Digest]bool{}
	var add func(d ocispec.Descriptor) error
	add = func(d ocispec.Descriptor) error {
		if seen[d.Digest] {
			return nil
		}
		seen[d.Digest] = true
		all = append(all, d)
		parts, err := content.Successors(ctx, from, d)
		for _, part := range parts {
			err = errors.Join(err, add(part))
		}
		return err
	}
	err = add(top)
	return all, err
}
