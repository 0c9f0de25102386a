package kubeadm

import (
	"context"
	"fmt"
	"slices"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// Login keeps how the kubelet of a node that has joined logs in while authorities are rotated: its kubeconfig trusts what the cluster trusts, and its
// certificate, which it renews by itself when that has lived long enough, is one that the present authority has signed.
type Login struct {
	CA     step.Content              // what is trusted
	Signer step.Content              // the present authority's certificate
	Client func() (*pki.Pair, error) `json:"-"`
}

// NewLogin returns the step for a node.
func NewLogin(c *cluster.Cluster, host string) step.Step {
	return Login{
		CA: c.Trust(pki.Kubernetes), Signer: c.CA(pki.Kubernetes).Cert,
		Client: func() (*pki.Pair, error) { return c.Certs.Joining(host) },
	}
}

func (Login) String() string { return "kubelet logs in" }

// Precheck reads the kubeconfig and the certificate. What kubeadm has not made yet is left to it.
func (l Login) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	files, err := r.ReadFiles(ctx, kubeletPath, currentPath)
	if err != nil {
		return nil, err
	}
	was, joined := files[kubeletPath]
	if !joined {
		return nil, nil
	}
	conf, err := pki.Trusting(was.Data, l.CA)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeletPath, err)
	}
	ch := &step.Change{Restarts: []string{"kubelet"}}
	put, back := "", []runner.File{}
	var list []runner.File
	if conf != nil {
		ch.Diff += "~ " + kubeletPath + ": trusts other authorities\n"
		list, back = append(list, runner.File{Path: kubeletPath, Data: conf, Mode: was.Mode}), append(back, was)
	}
	former, signed := files[currentPath], true
	if former.Data != nil {
		if signed, err = pki.SignedBy(former.Data, l.Signer); err != nil {
			return nil, fmt.Errorf("reading %s: %w", currentPath, err)
		}
	}
	if !signed {
		ch.Diff += "~ " + currentPath + ": signed by another authority\n"
		put = "ln -sfn " + clientPath + " " + currentPath + "\n"
		former.Path = clientPath
		back = append(back, former)
	}
	if ch.Diff == "" {
		return nil, nil
	}
	const restart = "systemctl restart kubelet"
	ch.Run = func(ctx context.Context) error {
		list := slices.Clone(list)
		if !signed {
			pair, err := l.Client()
			if err != nil {
				return err
			}
			list = append(list, runner.File{Path: clientPath, Data: slices.Concat(pair.Cert, []byte(pair.Key.Reveal())), Mode: 0o600})
		}
		// They were not there before kubexm: what it changes now is no original.
		if _, err := r.Change(ctx, "note 'path "+kubeletPath+"'; note 'path "+currentPath+"'"); err != nil {
			return err
		}
		_, err := r.Change(ctx, "files; "+put+restart, list...)
		return err
	}
	ch.Rollback = func(ctx context.Context) error {
		_, err := r.Change(ctx, "files; "+restart, back...)
		return err
	}
	return ch, nil
}
