package resource

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/resource/source"
)

// charts is what the names of components begin with that are charts of Helm repositories: the rest are the URL of the repository and the chart's name, escaped.
const charts = "chart-"

// NewChart returns the artifact of a chart in a Helm repository, which is known by its URL.
func NewChart(repository, name, version, arch string) (Artifact, error) {
	component := charts + url.QueryEscape(strings.TrimSuffix(repository, "/")+"/"+name)
	if version == "" || strings.ContainsAny(version, "/\\ ") {
		return Artifact{}, fmt.Errorf("chart %s: %q is no version", name, version)
	}
	a := Artifact{Component: component, Version: version, Arch: arch}
	c, err := find(component)
	a.File = a.expand(c.File)
	return a, err
}

// chartOf is the component of a chart by its name.
func chartOf(component string) (c Component, ok bool) {
	escaped, ok := strings.CutPrefix(component, charts)
	at, err := url.QueryUnescape(escaped)
	base, name := path.Split(at)
	return Component{Name: component, Base: base, File: name + "-{version}.tgz", Sums: "index.yaml"}, ok && err == nil && strings.Contains(base, "://") && name != ""
}

// repositoryIndex is what a Helm repository says of its charts (https://helm.sh/docs/topics/chart_repository).
type repositoryIndex struct {
	Entries map[string][]struct {
		Digest string
		URLs   []string
	}
}

// find returns the SHA-256 of a file, and where it is published; empty: it is not there.
func (r repositoryIndex) find(file string) (sum, at string) {
	for _, versions := range r.Entries {
		for _, v := range versions {
			for _, at := range v.URLs {
				if path.Base(at) == file && isSum(v.Digest) {
					return strings.ToLower(v.Digest), at
				}
			}
		}
	}
	return "", ""
}

func parseIndex(text string) (r repositoryIndex) {
	_ = yaml.Unmarshal([]byte(text), &r) // what is no YAML has no entries
	return r
}

// published is where a file is fetched from: for a chart of a Helm repository what that says, as it may be anywhere.
func (s *Store) published(ctx context.Context, a Artifact, c Component) (at string, err error) {
	at = a.expand(c.Base + "{file}")
	if _, is := chartOf(a.Component); !is {
		return at, nil
	}
	index := a.expand(c.SumsURL())
	err = askAll(ctx, s, s.source.SumPlaces(index), func(p source.Place) source.Place { return p }, func(ctx context.Context, place source.Place) error {
		text, err := s.text(ctx, place.URL)
		if err != nil {
			return err
		}
		_, found := parseIndex(text).find(a.File)
		if found == "" {
			return fmt.Errorf("GET %s: %w of %s in the answer", source.Redacted(place.URL), errNoSum, a.File)
		}
		base, err := url.Parse(index)
		if err != nil {
			return err
		}
		to, err := base.Parse(found)
		if err == nil {
			at = to.String()
		}
		return err
	})
	return at, err
}
