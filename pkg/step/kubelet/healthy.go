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
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
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

// Returned is a node that is Ready in the boot that its machine has now.
type Returned struct {
	Node string
	API  kube.Access `json:"-"`
}

// Back returns the step that waits until a node is Ready, once its machine may have restarted.
func Back(c *cluster.Cluster, host string) step.Step {
	return step.With(Returned{host, c.AnyAPI()}, step.Options{Timeout: 10 * time.Minute})
}

func (n Returned) String() string { return "node " + n.Node + " is Ready" }

// Precheck asks the machine for its boot, and the API for the node.
func (n Returned) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	client, err := step.Kube(r, n.API)
	if err != nil {
		return nil, err
	}
	boot, err := r.Sh(ctx, "cat /proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	why, err := client.NodeNotBack(ctx, n.Node, boot)
	if err != nil || why == "" {
		return nil, err
	}
	return &step.Change{Diff: "wait: " + why, Verify: step.Verified, Run: func(ctx context.Context) error {
		return fault.Advise(client.WaitNodeBack(ctx, n.Node, boot), "see why: kubectl describe node "+n.Node+"; on the host: journalctl -b -u kubelet")
	}}, nil
}

// Watched is a node that stays Ready for some time.
type Watched struct {
	Node string
	For  time.Duration
	API  kube.Access `json:"-"`
}

// Watch returns the step that waits as long as spec.upgrade.pause says, and fails where the node does not stay Ready meanwhile.
func Watch(c *cluster.Cluster, host string) step.Step {
	long := c.Spec.Upgrade.Pause.Duration
	return step.With(Watched{host, long, c.AnyAPI()}, step.Options{Timeout: long + 5*time.Minute, Retries: -1})
}

func (w Watched) String() string {
	return fmt.Sprintf("%s stays Ready for %s", w.Node, human.Duration(w.For))
}

// Precheck always finds that time is to pass.
func (w Watched) Precheck(_ context.Context, r *runner.Runner) (*step.Change, error) {
	return &step.Change{Diff: "wait " + human.Duration(w.For), Apart: true, Verify: step.Verified, Run: func(ctx context.Context) error {
		client, err := step.Kube(r, w.API)
		if err != nil {
			return err
		}
		for end := time.After(w.For); ; {
			why, err := client.NodeNotReady(ctx, w.Node)
			if err == nil && why != "" { // an API server that is away for a moment says nothing of the node
				return fault.Advise(fmt.Errorf("while the others waited for it, %s", why), "no other node has changed; see why: kubectl describe node "+w.Node)
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-end:
				return nil
			case <-time.After(min(w.For, 5*time.Second)):
			}
		}
	}}, nil
}
