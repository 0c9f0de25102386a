package loadbalancer

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// podFile is the manifest of kube-vip.
const podFile = runner.ManifestDir + "/kube-vip.yaml"

// kubeconfigOf is the annotation of kube-vip's pod with the digest of its kubeconfig.
const kubeconfigOf = "kubexm.io/kubeconfig"

const (
	// leaseName is that of the lease whose holder has the virtual address, which is kube-vip's own.
	leaseName = "plndr-cp-lock"
	// takes is how long the candidates may take until one of them leads: a lease of kube-vip's lasts five seconds, and machines are busy.
	takes = 15 * time.Second
	// appears is how long it is waited for another kube-vip that is ready.
	appears = time.Minute
	// replaced is how long a pod may be told to be ready after the manifest of another one took its place.
	replaced = 30 * time.Second
	// leaves is how long it may take until it has given up what is another's: three seconds, and what a busy machine adds.
	leaves = 10 * time.Second
)

// HandOver passes the virtual address from a master that runs kube-vip to the first of others on which kube-vip is ready, before its
// API server stops. The other one has the address before this one gives it up, so that nobody misses it. It has nothing to do with
// BGP, where each master has the address, nor where there is no other kube-vip.
func HandOver(c *cluster.Cluster, host string, others []string) step.Step {
	return Address{Host: host, To: others, Kubeconfig: digest(c.AdminKubeconfig()), API: c.AnyAPI()}
}

// Address is the step of HandOver.
type Address struct {
	Host       string
	To         []string
	Kubeconfig string      `json:"-"` // digest of the one that each kube-vip is to have
	API        kube.Access `json:"-"`
}

func (Address) String() string { return "virtual address elsewhere" }

// Precheck asks the host for the address, and then the API whether it has the lease, too.
func (a Address) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	if held, err := held(ctx, r); err != nil || !held {
		return nil, err
	}
	client, err := step.Kube(r, a.API)
	if err != nil {
		return nil, err
	}
	holder, err := client.LeaseHolder(kube.Impatient(ctx), "kube-system", leaseName)
	if err != nil || holder != a.Host || len(a.To) == 0 {
		if fault.IsTransient(err) { // no API server answers: nobody could take over
			err = nil
		}
		return nil, err
	}
	return &step.Change{
		Diff: fmt.Sprintf("pass the virtual address from %s to %s", a.Host, strings.Join(a.To, ", or ")), Verify: step.Verified,
		Run: func(ctx context.Context) error { return a.pass(ctx, r, client) },
	}, nil
}

// pass offers the lease to the others until one of them leads, those alone whose kube-vip is ready. One with another kubeconfig may be about to be replaced, though it is told to
// be ready: it is offered the lease only when no other one appears. Where none of them is ready for long, the address stays.
func (a Address) pass(ctx context.Context, r *runner.Runner, client *kube.Client) (err error) {
	begun := time.Now()
	for time.Since(begun) < appears {
		holder, err1 := client.LeaseHolder(ctx, "kube-system", leaseName)
		ready, err2 := client.ReadyOn(ctx, "kube-system", "app.kubernetes.io/name=kube-vip")
		if err = errors.Join(err1, err2); err != nil {
			return err
		}
		for _, to := range a.To {
			pod, is := ready[to]
			if is = is && (pod[kubeconfigOf] == a.Kubeconfig || time.Since(begun) > replaced); is && holder == a.Host {
				holder, err = a.offer(ctx, client, to)
			}
		}
		if slices.Contains(a.To, holder) {
			return gone(ctx, r)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return fault.Advise(err, "see there what kube-vip says: crictl logs $(crictl ps -q --name kube-vip)")
}

// offer passes the lease to another one, and returns who leads then.
func (a Address) offer(ctx context.Context, client *kube.Client, to string) (leads string, err error) {
	ctx, cancel := context.WithTimeout(ctx, takes)
	defer cancel()
	return client.PassLease(ctx, "kube-system", leaseName, to)
}

// gone waits until the host does not have the address any more.
func gone(ctx context.Context, r *runner.Runner) error {
	ctx, cancel := context.WithTimeout(ctx, leaves)
	defer cancel()
	for {
		has, err := held(ctx, r)
		if err != nil || !has {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("another master has the virtual address, but kube-vip here does not give it up")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

//go:embed scripts/held.sh
var heldScript string

// held reports whether the host has the virtual address of the kube-vip that it runs.
func held(ctx context.Context, r *runner.Runner) (bool, error) {
	out, err := r.Sh(ctx, "POD="+podFile+"\n"+heldScript)
	return out != "", err
}
