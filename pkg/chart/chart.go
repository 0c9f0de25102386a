// Package chart renders Helm charts. What they render is applied, compared, waited for and removed like manifests that somebody wrote: no releases are kept in the cluster.
package chart

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Release is what a chart is rendered for.
type Release struct {
	Name       string
	Namespace  string
	Kubernetes string           // version of the cluster
	Values     []map[string]any // each over those before it, and all over those of the chart
}

// Rendered are the manifests of a release, as YAML documents.
type Rendered struct {
	Before  []byte // Helm's hooks of before an installation or upgrade, by weight
	Objects []byte // definitions first
	After   []byte // Helm's hooks of after it, by weight; those of deletions, rollbacks and tests are left out
}

// Render renders a chart, which is a directory or an archive. It must render the same each time, as what it renders is compared with what there is.
func Render(ctx context.Context, file string, r Release) (*Rendered, error) {
	rendered, err := render(ctx, file, r)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", file, err)
	}
	return rendered, nil
}

// ReadValues reads a file with values.
func ReadValues(file string) (map[string]any, error) {
	values, err := common.ReadValuesFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading values of a chart in %s: %w", file, err)
	}
	return values, nil
}

func render(ctx context.Context, file string, r Release) (*Rendered, error) {
	c, err := loader.Load(file)
	if err != nil {
		return nil, err
	}
	if err := usable(c, r.Kubernetes); err != nil {
		return nil, err
	}
	chosen := map[string]any{}
	for _, values := range r.Values {
		chosen = loader.MergeMaps(chosen, values)
	}
	definitions := c.CRDObjects() // before dependencies that are turned off are taken out, as in Helm
	if err := util.ProcessDependencies(c, chosen); err != nil {
		return nil, err
	}
	version, err := common.ParseKubeVersion(r.Kubernetes)
	if err != nil {
		return nil, err
	}
	caps := common.DefaultCapabilities.Copy()
	caps.KubeVersion = *version
	values, err := commonutil.ToRenderValues(c, chosen, common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}, caps)
	if err != nil {
		return nil, err
	}
	files, err := same(ctx, c, values)
	if err != nil {
		return nil, err
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	all := &Rendered{}
	for _, d := range definitions {
		all.Objects = document(all.Objects, d.Filename, string(d.File.Data))
	}
	for _, m := range manifests {
		all.Objects = document(all.Objects, m.Name, m.Content)
	}
	slices.SortStableFunc(hooks, func(a, b *release.Hook) int { return cmp.Compare(a.Weight, b.Weight) })
	for _, h := range hooks {
		on := func(events ...release.HookEvent) bool {
			return slices.ContainsFunc(events, func(e release.HookEvent) bool { return slices.Contains(h.Events, e) })
		}
		if on(release.HookPreInstall, release.HookPreUpgrade) {
			all.Before = document(all.Before, h.Path, h.Manifest)
		} else if on(release.HookPostInstall, release.HookPostUpgrade) {
			all.After = document(all.After, h.Path, h.Manifest)
		}
	}
	return all, nil
}

// usable says why a chart is not.
func usable(c *v2.Chart, kubernetes string) error {
	if c.Metadata.Type == "library" {
		return fmt.Errorf("it is a library for other charts, and has nothing to install")
	}
	if v := c.Metadata.KubeVersion; v != "" && !util.IsCompatibleRange(v, kubernetes) {
		return fmt.Errorf("it is for Kubernetes %s, and not for %s", v, kubernetes)
	}
	for _, d := range c.Metadata.Dependencies {
		if !slices.ContainsFunc(c.Dependencies(), func(c *v2.Chart) bool { return c.Name() == d.Name }) {
			return fault.Advise(fmt.Errorf("chart %s, on which it depends, is not in its directory charts", d.Name), "fetch it with 'helm dependency build'")
		}
	}
	return nil
}

// same renders the templates twice. What is random, like a password, would be another one with every run.
func same(ctx context.Context, c *v2.Chart, values common.Values) (map[string]string, error) {
	var e engine.Engine
	files, err := e.RenderWithContext(ctx, c, values)
	if err != nil {
		return nil, err
	}
	again, err := e.RenderWithContext(ctx, c, values)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(files, func(name, _ string) bool { return path.Base(name) == "NOTES.txt" })
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if files[name] != again[name] {
			differ = append(differ, name)
		}
	}
	if differ != nil {
		return nil, fault.Advise(fmt.Errorf("%s: a password or certificate is made at random, and would be another one with every run", strings.Join(differ, ", ")),
			"set values that name one, or a Secret that has it")
	}
	return files, nil
}

func document(to []byte, name, text string) []byte {
	return append(to, "---\n# "+name+"\n"+string(bytes.TrimSpace([]byte(text)))+"\n"...)
}
