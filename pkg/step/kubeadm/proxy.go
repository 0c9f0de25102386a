package kubeadm

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// Proxy is the kube-proxy of a master whose API server has started after it. It asks again only after a while, up to half a minute, and would not hear
// meanwhile of pods that move.
type Proxy struct {
	Metrics string // where it serves them
}

// ProxyHears returns the step that starts it again.
func ProxyHears(c *cluster.Cluster) step.Step {
	at, _ := c.ProxyConfig()["metricsBindAddress"].(string)
	if at == "" {
		at = "127.0.0.1:10249"
	}
	return step.With(Proxy{at}, step.Options{Timeout: 3 * time.Minute})
}

func (Proxy) String() string { return "kube-proxy follows its API server" }

// Precheck compares when both have started.
func (p Proxy) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	library := runner.Script(scripts, "pods")
	out, err := r.Sh(ctx, library+"if deaf; then echo deaf; fi")
	if err != nil || out == "" {
		return nil, err
	}
	return &step.Change{Diff: "start kube-proxy again", Verify: step.Verified, Run: func(ctx context.Context) error {
		if _, err := r.Sh(ctx, library+"crictl stop --timeout 5 $(crictl ps -q --name '^kube-proxy$') >&2; until_ hears"); err != nil {
			return fmt.Errorf("starting kube-proxy again: %w", err)
		}
		for begin := time.Now(); !p.synced(ctx, r) && time.Since(begin) < 30*time.Second; { // it may serve no metrics
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(200 * time.Millisecond):
			}
		}
		return nil
	}}, nil
}

// synced asks whether it has made all rules once.
//
// Facts: k8s.io/kubernetes/pkg/proxy/metrics.
func (p Proxy) synced(ctx context.Context, r *runner.Runner) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Metrics+"/metrics", nil)
	if err != nil {
		return false
	}
	resp, err := (&http.Client{Transport: &http.Transport{DialContext: r.Dial, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if l := lines.Text(); strings.HasPrefix(l, "kubeproxy_sync_proxy_rules_last_timestamp_seconds") && !strings.HasSuffix(l, " 0") {
			return true
		}
	}
	return false
}
