package resource

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/kubexm/kubexm/pkg/resource/source"
)

// OCI is what URLs of registries of images begin with that have charts (https://helm.sh/docs/topics/registries).
const OCI = "oci://"

// layer is said of charts whose checksum is that of a layer of an image.
const layer = "layer"

// chartLayer is the media type of the layer that is a chart.
const chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

// imageOf is the reference of a chart in a registry. Tags have no +.
func imageOf(a Artifact, c Component) string {
	name := strings.TrimSuffix(c.File, "-{version}.tgz")
	return strings.TrimPrefix(c.Base, OCI) + name + ":" + strings.ReplaceAll(a.Version, "+", "_")
}

// layerSum asks registries for the checksum of a chart.
func (s *Store) layerSum(ctx context.Context, a Artifact, c Component) (sum string, at source.Place, err error) {
	p := pull{Store: s, ref: imageOf(a, c)}
	sites, err := p.sites(s.source.SumPlaces(p.ref))
	if err != nil {
		return "", at, err
	}
	err = askAll(ctx, s, sites, func(one site) source.Place { return one.place }, func(ctx context.Context, one site) error {
		ctx, cancel := context.WithTimeoutCause(ctx, s.retry.Stall, source.ErrStalled)
		defer cancel()
		at = one.place
		if sum, err = layerOf(ctx, one); err != nil {
			return fmt.Errorf("%s: %w", one.Reference.Registry, source.ExplainLogin(source.Cause(ctx, err), scheme(one.Repository)+one.Reference.Registry))
		}
		return nil
	})
	return sum, at, err
}

// layerOf reads the checksum of the chart that a repository has under its tag.
func layerOf(ctx context.Context, at site) (string, error) {
	d, err := at.Resolve(ctx, at.Reference.Reference)
	if err != nil {
		return "", err
	}
	text, err := content.FetchAll(ctx, at, d)
	if err != nil {
		return "", err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return "", err
	}
	i := slices.IndexFunc(m.Layers, func(l ocispec.Descriptor) bool { return l.MediaType == chartLayer })
	if i < 0 || m.Layers[i].Digest.Algorithm() != digest.SHA256 || m.Layers[i].Digest.Validate() != nil {
		return "", fmt.Errorf("%s is no Helm chart", at.Reference)
	}
	return m.Layers[i].Digest.Encoded(), nil
}

// layerPlaces are where the layer is that is a chart.
func (s *Store) layerPlaces(a Artifact, c Component) ([]place, error) {
	p := pull{Store: s, ref: imageOf(a, c)}
	sites, err := p.sites(s.source.Places(p.ref))
	return blobPlaces(sites, digest.NewDigestFromEncoded(digest.SHA256, a.SHA256)), err
}
