package kube

import (
	_ "embed"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go test -run ^TestRemovedAPIs$ -update .

// RemovedAPI is an API that Kubernetes serves no more from some version on.
type RemovedAPI struct {
	API         schema.GroupVersionKind // one that only an API server knows has its resource as Kind: "pods/eviction"
	RemovedIn   int                     // the first minor version of Kubernetes 1 without it
	Replacement schema.GroupVersionKind // what to use instead; empty: there is none, or it is not known
}

// removedText is the table of all removals that k8s.io/api knows, past and planned: what APILifecycleRemoved and
// APILifecycleReplacement of its types say, in lines "APIVERSION KIND REMOVED [APIVERSION KIND]".
//
//go:embed removed.txt
var removedText string

// removedAPIs reads the table.
func removedAPIs() map[schema.GroupVersionKind]RemovedAPI {
	all := map[schema.GroupVersionKind]RemovedAPI{}
	for line := range strings.Lines(removedText) {
		w := append(strings.Fields(line), "", "")
		is := RemovedAPI{API: schema.FromAPIVersionAndKind(w[0], w[1]), RemovedIn: minorOf(w[2]), Replacement: schema.FromAPIVersionAndKind(w[3], w[4])}
		all[is.API] = is
	}
	return all
}

// minorOf is 37 of "1.37"; 0 of what is no version of Kubernetes 1.
func minorOf(release string) (minor int) {
	if n, err := fmt.Sscanf(release, "1.%d", &minor); n != 1 || err != nil {
		return 0
	}
	return minor
}

// resource is under what the API server serves it.
func (a RemovedAPI) resource() schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(a.API) // right for all kinds of the table
	return plural
}

// String is "networking.k8s.io/v1beta1 IPAddress, removed in 1.37 for networking.k8s.io/v1 IPAddress".
func (a RemovedAPI) String() string {
	text := fmt.Sprintf("%s, removed in 1.%d", apiName(a.API), a.RemovedIn)
	if !a.Replacement.Empty() {
		text += " for " + apiName(a.Replacement)
	}
	return text
}

func apiName(api schema.GroupVersionKind) string { return api.GroupVersion().String() + " " + api.Kind }
