package kubelet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Health waits until the kubelet of its host says that it is well.
type Health struct {
	URL string
}

// Healthy returns the step that waits for the kubelet of a host.
func Healthy(c *cluster.Cluster, host string) step.Step {
	conf := c.KubeletConfig(host)
	at := net.JoinHostPort(fmt.Sprint(conf["healthzBindAddress"]), fmt.Sprint(conf["healthzPort"]))
	return step.With(Health{"http://" + at + "/healthz"}, step.Options{Timeout: 3 * time.Minute})
}

func (Health) String() string { return "wait for the kubelet" }

// Precheck asks once.
func (h Health) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	why := h.ask(ctx, r)
	if why == nil {
		return nil, nil
	}
	return &step.Change{Diff: "wait: " + why.Error(), Verify: step.Verified, Run: func(ctx context.Context) error {
		for pause := 100 * time.Millisecond; why != nil; pause = min(2*pause, 2*time.Second) {
			select {
			case <-ctx.Done():
				err := fmt.Errorf("%w: %w\n%s", context.Cause(ctx), why, step.Journal(context.WithoutCancel(ctx), r, "kubelet"))
				return fault.Advise(err, "look at the host: journalctl -u kubelet")
			case <-time.After(pause):
				why = h.ask(ctx, r)
			}
		}
		return nil
	}}, nil
}

func (h Health) ask(ctx context.Context, r *runner.Runner) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DialContext: r.Dial, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return fmt.Errorf("asking the kubelet for its health: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<12)) // only to be told
		return fmt.Errorf("the kubelet is not healthy: %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return nil
}
