package resource

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

// Registry is a registry that images of the store are pushed to. A step may hold one: what
// is secret does not marshal.
type Registry struct {
	Name     string // what references to its images begin with: registry.example.com:5000
	Address  string // where it listens: 10.0.0.21:5000
	CA       []byte `json:"-"` // PEM, of the authority that signed its certificate
	User     string
	Password secret.Secret `json:"-"`
	Harbor   bool          `json:",omitempty"` // it is Harbor, where the user is its administrator

	Dial func(ctx context.Context, network, address string) (net.Conn, error) `json:"-"` // nil: from this machine
}

// RepositoryName is where a registry that has images of others has those of a registry, or a
// repository: registry.k8s.io/pause. No colon can be in there.
func RepositoryName(name string) string { return strings.ReplaceAll(name, ":", "_") }

// place is the reference of an image in the registry.
func (r Registry) place(ref string) (registry.Reference, error) {
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

// client is connections to a registry, to be closed. The registry wants to know who calls: it is told at once.
type client struct {
	*http.Client
	registry Registry
	close    func()
}

// Do sends a request.
func (c client) Do(req *http.Request) (*http.Response, error) {
	req.SetBasicAuth(c.registry.User, c.registry.Password.Reveal())
	return c.Client.Do(req)
}

// connect prepares connections: none is made yet.
func (r Registry) connect() client {
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
	return client{&http.Client{Transport: t}, r, t.CloseIdleConnections}
}

// all is the registry as a whole.
func (c client) all() *remote.Registry {
	return &remote.Registry{RepositoryOptions: remote.RepositoryOptions{Client: c, Reference: registry.Reference{Registry: c.registry.Name}}}
}

func (c client) repository(place registry.Reference) *remote.Repository {
	return &remote.Repository{Client: c, Reference: place}
}

// Unit is the systemd unit that runs the registry on its host.
func (r Registry) Unit() string {
	if r.Harbor {
		return "harbor"
	}
	return "registry"
}

// Ping asks whether the registry answers, and knows the user; and whether all parts of Harbor are well.
func (r Registry) Ping(ctx context.Context) error {
	c := r.connect()
	defer c.close()
	err := c.all().Ping(ctx)
	if err == nil && r.Harbor {
		err = c.healthy(ctx)
	}
	return r.explain(err)
}

// explain says what to do about an error of the registry. One of the way there may pass.
func (r Registry) explain(err error) error {
	var refused *errcode.ErrorResponse
	var broken *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden):
		advice := "run kubexm create cluster again: it brings the registry's users to what the configuration says"
		if r.Harbor {
			advice = "Harbor keeps the password that it had when it first started, or was given since on its web page: give that one in spec.registry.auth"
		}
		return fault.Advise(fmt.Errorf("registry %s does not let user %s in: %w", r.Name, r.User, err), advice)
	case errors.As(err, &broken), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Transient(fault.Advise(fmt.Errorf("registry %s: %w", r.Name, err), "see on its host whether it runs: journalctl -u "+r.Unit()))
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
func (r Registry) List(ctx context.Context) ([]Tagged, error) {
	c := r.connect()
	defer c.close()
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
		return nil, r.explain(err)
	}
	slices.SortFunc(found, func(a, b Tagged) int { return strings.Compare(a.Repository+":"+a.Tag, b.Repository+":"+b.Tag) })
	return found, nil
}

// inspect looks at an image in a repository.
func inspect(ctx context.Context, repo *remote.Repository, tag string) (Tagged, error) {
	t := Tagged{Repository: repo.Reference.Repository, Tag: tag}
	top, err := repo.Resolve(ctx, tag)
	if err != nil {
		return t, err
	}
	t.Digest = top.Digest.String()
	parts, err := tree(ctx, repo, top)
	for _, d := range parts {
		t.Size += d.Size
		if d.Platform != nil {
			t.Archs = append(t.Archs, d.Platform.Architecture)
		}
	}
	slices.Sort(t.Archs)
	return t, err
}

// tree lists a manifest, or an index, with all below it, each once.
func tree(ctx context.Context, from content.Fetcher, top ocispec.Descriptor) (all []ocispec.Descriptor, err error) {
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

// top is what the tag of an image means in a registry that the store is pushed to: its manifest, or
// an index of those of all architectures that the store has as a whole.
func (s *Store) top(ctx context.Context, l lock, ref string) (ocispec.Descriptor, error) {
	here := lockedImage{Manifests: map[string]ocispec.Descriptor{}}
	for arch, d := range l.Images[ref].Manifests {
		if _, err := s.blobs(l, ref, arch); err == nil {
			here.Manifests[arch] = d
		}
	}
	all, joint, err := s.listImages(lock{Images: map[string]lockedImage{ref: here}})
	if err == nil && len(all) == 0 {
		err = notPulled(ref, "any architecture")
	}
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	for _, text := range joint { // what was pulled has it
		if err := s.putBlob(ctx, digest.FromBytes(text), text); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	return ocispec.Descriptor{MediaType: all[0].MediaType, Digest: all[0].Digest, Size: all[0].Size}, nil
}

// TopDigest returns the digest that the tag of an image has in a registry that the store was pushed to.
func (s *Store) TopDigest(ctx context.Context, ref string) (string, error) {
	l, err := s.readLock()
	if err != nil {
		return "", err
	}
	d, err := s.top(ctx, l, ref)
	return d.Digest.String(), err
}

// Images returns the references of all images that the store has for some architecture.
func (s *Store) Images() ([]string, error) {
	l, err := s.readLock()
	var all []string
	for image := range l.manifests() {
		if _, err := s.blobs(l, image.Image, image.Arch); err == nil && !slices.Contains(all, image.Image) {
			all = append(all, image.Image)
		}
	}
	return all, err
}

// Lacks returns those of the images that the registry does not have as the store has them.
func (s *Store) Lacks(ctx context.Context, r Registry, refs ...string) ([]string, error) {
	l, err := s.readLock()
	if err != nil {
		return nil, err
	}
	wanted := make([]ocispec.Descriptor, len(refs))
	for i, ref := range refs {
		if wanted[i], err = s.top(ctx, l, ref); err != nil {
			return nil, err
		}
	}
	c := r.connect()
	defer c.close()
	lacks := make([]bool, len(refs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atATime)
	for i, ref := range refs {
		g.Go(func() error {
			place, err := r.place(ref)
			if err != nil {
				return err
			}
			if there, err := c.hasProject(ctx, place); err != nil || !there {
				lacks[i] = true
				return err
			}
			have, err := c.repository(place).Resolve(ctx, place.Reference)
			if errors.Is(err, errdef.ErrNotFound) {
				lacks[i] = true
				return nil
			}
			lacks[i] = have.Digest != wanted[i].Digest
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, r.explain(err)
	}
	var all []string
	for i, ref := range refs {
		if lacks[i] {
			all = append(all, ref)
		}
	}
	return all, nil
}
