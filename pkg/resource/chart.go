package resource

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// charts is what the names of components begin with that are charts of Helm repositories: the rest are the URL of the repository and the chart's name, escaped.
const charts = "chart-"

// NewChart returns the artifact of a chart in a Helm repository, which is known by its URL.
func NewChart(repository, name, version, arch string) (Artifact, error) {
	return New(charts+url.QueryEscape(strings.TrimSuffix(repository, "/")+"/"+name), version, arch)
}

// chartOf is the component of a chart by its name.
func chartOf(component string) (c Component, ok bool) {
	escaped, ok := strings.CutPrefix(component, charts)
	at, err := url.QueryUnescape(escaped)
	base, name := path.Split(at)
	c = Component{Name: component, Base: base, File: name + "-{version}.tgz", Sums: listing}
	if strings.HasPrefix(base, OCI) {
		c.Sums = layer
	}
	return c, ok && err == nil && strings.Contains(base, "://") && name != ""
}

// manifests is what the names of components begin with that are files with manifests: the rest is their URL, escaped.
const manifests = "manifests-"

// NewManifests returns the artifact of a file with manifests, which is known by its URL.
func NewManifests(at string) (Artifact, error) {
	return New(manifests+url.QueryEscape(at), "1", "amd64") // it is the same for all
}

// manifestsOf is the component of a file with manifests by its name. Nobody says anywhere what it is.
func manifestsOf(component string) (c Component, ok bool) {
	escaped, ok := strings.CutPrefix(component, manifests)
	at, err := url.QueryUnescape(escaped)
	base, file := path.Split(at)
	return Component{Name: component, Base: base, File: file}, ok && err == nil && strings.Contains(base, "://") && file != ""
}

// listing is what Helm repositories call the list of their charts, with checksums and places.
const listing = "index.yaml"

// repositoryIndex is what a Helm repository says of its charts (https://helm.sh/docs/topics/chart_repository).
type repositoryIndex struct {
	Entries map[string][]struct {
		Version, Digest string
		URLs            []string
	}
}

// find returns the SHA-256 of a version of a chart, and where it is published.
func (r repositoryIndex) find(name, wanted string) (sum, at string, err error) {
	var others []string
	for _, v := range r.Entries[name] {
		switch {
		case v.Version != wanted:
			others = append(others, v.Version)
		case len(v.URLs) == 0:
			return "", "", fmt.Errorf("it says of chart %s %s not where it is", name, wanted)
		case strings.HasPrefix(v.URLs[0], "oci://"):
			in, _, _ := strings.Cut(path.Base(v.URLs[0]), ":")
			return "", "", fault.Advise(fmt.Errorf("it has chart %s %s in a registry of images alone", name, wanted),
				"name that as repository: "+OCI+path.Dir(strings.TrimPrefix(v.URLs[0], OCI))+", with chart: "+in)
		case !isSum(v.Digest):
			return "", "", fault.Advise(fmt.Errorf("%w of chart %s %s is in it", errNoSum, name, wanted), "fetch it with 'helm pull', and name the file")
		default:
			return strings.ToLower(v.Digest), v.URLs[0], nil
		}
	}
	if others == nil {
		return "", "", fmt.Errorf("it has no chart %s", name)
	}
	return "", "", fault.Advise(fmt.Errorf("it has no version %s of chart %s", wanted, name), "choose one that it has, like "+human.Names(others, 5))
}

func parseIndex(text string) (r repositoryIndex) {
	_ = yaml.Unmarshal([]byte(text), &r) // what is no YAML has no entries
	return r
}

// index reads the index of a repository, once.
func (s *Store) index(ctx context.Context, at string) (repositoryIndex, error) {
	if known, ok := s.indexes.Load(at); ok {
		return known.(repositoryIndex), nil //nolint:forcetypeassert // nothing else is in it
	}
	text, err := s.text(ctx, at)
	if err != nil {
		return repositoryIndex{}, err
	}
	r := parseIndex(text)
	s.indexes.Store(at, r)
	return r, nil
}

// listed returns what the repository says of a chart. It is asked once.
func (s *Store) listed(ctx context.Context, a Artifact, c Component) (sum, at string, from source.Place, err error) {
	index := c.Base + c.Sums
	name := strings.TrimSuffix(c.File, "-{version}.tgz")
	err = askAll(ctx, s, s.source.SumPlaces(index), func(p source.Place) source.Place { return p }, func(ctx context.Context, place source.Place) error {
		known, err := s.index(ctx, place.URL)
		if err != nil {
			return err
		}
		if sum, at, err = known.find(name, a.Version); err != nil {
			return fmt.Errorf("repository %s: %w", source.Redacted(place.URL), err)
		}
		from = place
		return nil
	})
	if err != nil {
		return "", "", from, err
	}
	base, err := url.Parse(index)
	if err == nil {
		var to *url.URL
		if to, err = base.Parse(at); err == nil {
			at = to.String()
		}
	}
	return sum, at, from, err
}

// published are the places from which a file is fetched: for a chart of a Helm repository what that says, as it may be anywhere.
func (s *Store) published(ctx context.Context, a Artifact, c Component) ([]place, error) {
	switch c.Sums {
	case listing:
		_, at, _, err := s.listed(ctx, a, c)
		return s.places(at), err
	case layer:
		return s.layerPlaces(a, c)
	}
	return s.places(a.expand(c.Base + "{file}")), nil
}
