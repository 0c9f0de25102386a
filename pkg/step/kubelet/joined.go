package kubelet

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// Configuration keeps the configuration of a kubelet that kubeadm has started. kubeadm writes the same
// fields, and further ones that say nothing; so the file is rewritten only when a field differs.
type Configuration struct {
	File step.File
}

// Joined returns the step that keeps the kubelet's configuration once kubeadm has made a node of the host.
func Joined(c *cluster.Cluster, host string) step.Step {
	return Configuration{step.File{Path: configFile, Content: c.YAML(c.KubeletConfig(host)), Mode: 0o644}}
}

func (Configuration) String() string { return "kubelet configuration" }

// Writes is the file.
func (c Configuration) Writes() ([]step.File, error) { return c.File.Writes() }

// Precheck compares the fields.
func (c Configuration) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	files, err := r.ReadFiles(ctx, c.File.Path, kubeconfig)
	if err != nil {
		return nil, err
	}
	is, there := files[c.File.Path]
	if _, joined := files[kubeconfig]; !joined || !there { // kubeadm is still to come
		return nil, nil
	}
	var has, wants map[string]any
	if err := yaml.Unmarshal(c.File.Content, &wants); err != nil {
		return nil, fmt.Errorf("reading the kubelet's configuration: %w", err)
	}
	if yaml.Unmarshal(is.Data, &has) == nil && means(has, wants) {
		return nil, nil
	}
	return c.File.Precheck(ctx, r)
}

// means reports whether a configuration says what is wanted: all that, and nothing else but what are no values.
func means(has, wants map[string]any) bool {
	for k, w := range wants {
		h, ok := has[k]
		inner, isMap := h.(map[string]any)
		wanted, wantsMap := w.(map[string]any)
		if !ok || isMap != wantsMap || isMap && !means(inner, wanted) || !isMap && !equal(h, w) {
			return false
		}
	}
	for k, h := range has {
		if _, ok := wants[k]; !ok && !nothing(h) {
			return false
		}
	}
	return true
}

// equal reports whether two values are the same; kubeadm writes durations in its own way: 1m0s for 1m.
func equal(a, b any) bool {
	x, isText := a.(string)
	y, too := b.(string)
	if !isText || !too || x == y {
		return reflect.DeepEqual(a, b)
	}
	d1, err1 := time.ParseDuration(x)
	d2, err2 := time.ParseDuration(y)
	return err1 == nil && err2 == nil && d1 == d2
}

// nothing reports whether a field is one that kubeadm writes without a value: "0s", 0, null, or an object of such.
func nothing(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == "" || v == "0s" || v == "0"
	case float64:
		return v == 0
	case map[string]any:
		for _, e := range v {
			if !nothing(e) {
				return false
			}
		}
		return true
	}
	return false
}
