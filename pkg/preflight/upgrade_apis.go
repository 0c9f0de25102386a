package preflight

import (
	"context"
	"fmt"
	"strings"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/step"
)

// soon is how many minor versions after the goal of an upgrade an API may be gone for its use to be a warning.
const soon = 2

// apiUses are uses of APIs that are gone at the end of the way, or soon after it.
type apiUses struct {
	to            int // the minor version at the end
	removed, soon []kube.RemovedUse
	unread        []string // what could not be searched
	err           error
}

// apiUses looks for both at once.
func (l *Look) apiUses(ctx context.Context) (is apiUses) {
	runs, _ := l.Cluster.Runs()
	is.to = max(l.To, l.Cluster.Minor())
	if l.Cluster.GoesBack() {
		return is
	}
	client, err := l.client()
	servers := map[string]*kube.Client{}
	for _, m := range l.Cluster.Observed.AnyAPI() {
		if err == nil {
			servers[m], err = step.Kube(l.Hosts[plan.API], l.Cluster.API(m))
		}
	}
	var all []kube.RemovedUse
	if err == nil {
		all, is.unread, err = client.RemovedUses(ctx, config.Minor(runs.Kubernetes), is.to+soon, servers)
	}
	for _, u := range all {
		if u.RemovedIn <= is.to {
			is.removed = append(is.removed, u)
		} else {
			is.soon = append(is.soon, u)
		}
	}
	is.err = err
	return is
}

// removedAPIs finds what uses APIs that are gone at the end of the way.
func removedAPIs(_ context.Context, l *Look) (found []Finding, _ error) {
	is := l.uses()
	for _, u := range is.removed {
		found = append(found, usedAPI(u, fmt.Sprintf("no use of APIs that Kubernetes 1.%d does not serve", is.to)))
	}
	for _, text := range is.unread {
		found = append(found, Finding{Severity: SeverityWarning, Found: text, Needed: "manifests that can be searched for removed APIs", Fix: "look yourself for apiVersions in it that are removed"})
	}
	return found, is.err
}

// deprecatedAPIs finds what uses APIs that go soon after. What cannot be searched is told by removedAPIs.
func deprecatedAPIs(_ context.Context, l *Look) (found []Finding, _ error) {
	is := l.uses()
	for _, u := range is.soon {
		found = append(found, usedAPI(u, fmt.Sprintf("no use of deprecated APIs: this one still works in Kubernetes 1.%d", is.to)))
	}
	return found, nil
}

func usedAPI(u kube.RemovedUse, needed string) Finding {
	return Finding{Found: fmt.Sprintf("%s %s, removed in 1.%d: %s", u.API.GroupVersion(), u.API.Kind, u.RemovedIn, u.Where), Needed: needed, Fix: instead(u)}
}

// instead is what to do about a use of a removed API, which depends on where it was found.
func instead(u kube.RemovedUse) string {
	to := fmt.Sprintf("%s %s", u.Replacement.GroupVersion(), u.Replacement.Kind)
	if u.Replacement.Empty() {
		to = "what replaces it (https://kubernetes.io/docs/reference/using-api/deprecation-guide)"
	}
	switch rest, helm := strings.CutPrefix(u.Where, "Helm release "); {
	case helm:
		name, _, _ := strings.Cut(rest, " ")
		namespace, name, _ := strings.Cut(name, "/")
		return fmt.Sprintf("upgrade the release to a chart with %s, or have it rewritten: helm mapkubeapis %s --namespace %s", to, name, namespace)
	case strings.HasSuffix(u.Where, "by kubectl apply"):
		return "apply its manifest again, with " + to
	}
	return fmt.Sprintf("find its callers in the audit log (annotation k8s.io/deprecated) and have them use %s; then restart that kube-apiserver, which remembers calls", to)
}
