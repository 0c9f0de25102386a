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
	"text/template"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Release is what a chart is rendered for.
type Release struct {
	Name       string
	Namespace  string
	Kubernetes string         // version of the cluster
	Values     map[string]any // over those of the chart
}

// Part is one after the other to be applied and waited for.
type Part struct {
	Name    string // empty: the chart itself; else what Helm's hooks are for, and their weight where that is not 0: before, after.5
	Objects []byte // YAML documents
}

// Render renders a chart, which is a directory or an archive. It must render the same each time, as what it renders is compared with what there is.
func Render(ctx context.Context, file string, r Release) ([]Part, error) {
	rendered, err := render(ctx, file, r)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", file, err)
	}
	return rendered, nil
}

// Merge returns values, each over those before them.
func Merge(all ...map[string]any) map[string]any {
	merged := map[string]any{}
	for _, values := range all {
		merged = loader.MergeMaps(merged, values)
	}
	return merged
}

// ReadValues reads a file with values.
func ReadValues(file string) (map[string]any, error) {
	values, err := common.ReadValuesFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading values of a chart in %s: %w", file, err)
	}
	return values, nil
}

func render(ctx context.Context, file string, r Release) ([]Part, error) {
	c, err := loader.Load(file)
	if err != nil {
		return nil, err
	}
	if err := usable(c, r.Kubernetes); err != nil {
		return nil, err
	}
	chosen := Merge(r.Values) // a copy: dependencies are noted in it
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
	return parts(c, files)
}

// parts are the hooks of before an installation, by their weights, the chart itself with its definitions, and the hooks of after an installation. Those of
// upgrades alone are left out, as of deletions, rollbacks and tests: they are for what a former version has left.
func parts(c *v2.Chart, files map[string]string) ([]Part, error) {
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	itself := Part{}
	for _, d := range c.CRDObjects() {
		itself.Objects = document(itself.Objects, d.Filename, string(d.File.Data))
	}
	for _, m := range manifests {
		if itself.Objects, err = manifest(itself.Objects, m.Name, m.Head.Kind, m.Content); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(hooks, func(a, b *release.Hook) int { return cmp.Compare(a.Weight, b.Weight) })
	before, err := hooked("before", release.HookPreInstall, hooks)
	if err != nil {
		return nil, err
	}
	after, err := hooked("after", release.HookPostInstall, hooks)
	all := slices.Concat(before, []Part{itself}, after)
	return slices.DeleteFunc(all, func(p Part) bool { return len(p.Objects) == 0 }), err
}

// hooked are the parts of hooks, which are sorted by their weights.
func hooked(name string, on release.HookEvent, hooks []*release.Hook) (all []Part, err error) {
	for _, h := range hooks {
		if !slices.Contains(h.Events, on) {
			continue
		}
		part := name
		if h.Weight != 0 {
			part += fmt.Sprintf(".%d", h.Weight)
		}
		if len(all) == 0 || all[len(all)-1].Name != part {
			all = append(all, Part{Name: part})
		}
		last := &all[len(all)-1]
		if last.Objects, err = manifest(last.Objects, h.Path, h.Kind, h.Manifest); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// manifest adds an object. A Job that Kubernetes would remove some time after its end stays, as it would be made again and again.
func manifest(to []byte, name, kind, text string) ([]byte, error) {
	if kind == "Job" && strings.Contains(text, "ttlSecondsAfterFinished") {
		var job map[string]any
		err := yaml.Unmarshal([]byte(text), &job)
		if spec, ok := job["spec"].(map[string]any); ok {
			delete(spec, "ttlSecondsAfterFinished")
		}
		changed, err2 := yaml.Marshal(job)
		if err = cmp.Or(err, err2); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		text = string(changed)
	}
	return document(to, name, text), nil
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

// same renders the templates twice, as of two days. What is random, like a password, or has the time would be another one with every run.
func same(ctx context.Context, c *v2.Chart, values common.Values) (map[string]string, error) {
	files, err := (engine.Engine{}).RenderWithContext(ctx, c, values)
	if err != nil {
		return nil, err
	}
	later := engine.Engine{CustomTemplateFuncs: template.FuncMap{"now": func() time.Time { return time.Now().Add(400 * 24 * time.Hour) }}}
	again, err := later.RenderWithContext(ctx, c, values)
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
		return nil, fault.Advise(fmt.Errorf("%s: what is made at random, or from the time, would be another one with every run", strings.Join(differ, ", ")),
			"where it is a password or certificate, set values that name one, or a Secret that has it")
	}
	return files, nil
}

func document(to []byte, name, text string) []byte {
	return append(to, "---\n# "+name+"\n"+string(bytes.TrimSpace([]byte(text)))+"\n"...)
}
