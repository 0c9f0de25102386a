package plugin

import (
	"slices"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// Chart is what an addon is made of that is known by its name.
type Chart struct {
	Name       string // of the addon, and of the chart in its repository
	Repository string
	Version    string // of the chart, that was tested
	Namespace  string
	Values     map[string]any // under those of the configuration
}

// Charts are the addons that need no more than their name.
func Charts() []Chart { return []Chart{metricsServer} }

// KnownChart returns the chart of an addon that gives its name, or no other source than there is here.
func KnownChart(a v1alpha1.Addon) (c Chart, ok bool) {
	i := slices.IndexFunc(Charts(), func(c Chart) bool {
		given := len(a.Files) > 0 || a.Inline != "" || a.Chart != "" && a.Chart != c.Name || a.Repository != "" && a.Repository != c.Repository
		return a.Name == c.Name && !given
	})
	if i < 0 {
		return Chart{}, false
	}
	return Charts()[i], true
}

// metricsServer answers kubectl top and HorizontalPodAutoscalers. It checks the certificates of kubelets, which the cluster's authority has signed.
var metricsServer = Chart{
	Name: "metrics-server", Repository: "https://kubernetes-sigs.github.io/metrics-server", Version: "3.13.1", Namespace: "kube-system",
	Values: map[string]any{"image": map[string]any{"tag": "v0.9.0"}},
}
