package app

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Recovered is what a cluster tells of itself, to whoever has lost the control machine.
type Recovered struct {
	Cluster string   `json:"cluster"`
	ID      string   `json:"id"`
	Kubexm  string   `json:"kubexm,omitempty"`  // the version that has last applied the configuration
	Config  string   `json:"config"`            // the text of cluster.yaml, without secrets
	Secrets []string `json:"secrets,omitempty"` // the fields whose secrets are to be filled in again
	Outside []string `json:"outside,omitempty"` // what the configuration names and does not hold, like files
}

// What a cluster has for whoever recovers it.
const (
	administratorConf = "/etc/kubernetes/admin.conf"
	keptObjects       = "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: kube-system, name: kubexm}}\n---\n" +
		"{apiVersion: v1, kind: Secret, metadata: {namespace: kube-system, name: " + config.KeptSecret + "}}\n"
)

// Recover reads the configuration and the identity of a cluster from one of its masters, without anything that is remembered of it here. Only
// SSH is needed: the API server is reached through that connection, with the administrator's kubeconfig of the master. Nothing is changed.
func (a *App) Recover(ctx context.Context, r Request, o Observer, master v1alpha1.Host) (*Recovered, error) {
	f, err := a.reachMaster(ctx, r, o, &master)
	if f != nil {
		defer f.hangUp()
	}
	if err != nil {
		return nil, err
	}
	is, err := recovered(ctx, f.hosts[master.Name])
	if err != nil {
		return nil, &HostError{master.Name, err}
	}
	if r.Name != "" && r.Name != is.Cluster {
		err := fmt.Errorf("%s is a master of cluster %s, --name says %s", master.Address, is.Cluster, r.Name)
		return nil, fault.Exit(fault.Advise(err, "give the name that it has, or the address of a master of the other cluster"), fault.ExitUsage)
	}
	return is, nil
}

// reachMaster connects to a master without knowing its cluster.
func (a *App) reachMaster(ctx context.Context, r Request, o Observer, master *v1alpha1.Host) (*fleet, error) {
	master.Name = master.Address
	s := &session{use: a.use(r, o), config: &v1alpha1.Cluster{Spec: v1alpha1.Spec{Hosts: []v1alpha1.Host{*master}}}}
	config.Default(s.config)
	warnings, err := config.ResolveSecrets(ctx, s.config, s.local)
	s.warn(warnings)
	if err != nil {
		return nil, fault.Exit(err, fault.ExitUsage)
	}
	if s.dir, err = filepath.Abs(a.Workdir); err != nil { // where the host key goes: the cluster has no name yet
		return nil, fmt.Errorf("finding the work directory: %w", err)
	}
	if err := s.makeDir(); err != nil {
		return nil, err
	}
	f, failed := s.dialAll(ctx)
	if len(failed) > 0 {
		return f, failed[0]
	}
	return f, nil
}

// recovered asks a master.
func recovered(ctx context.Context, r *runner.Runner) (*Recovered, error) {
	access, err := administrator(ctx, r)
	if err != nil {
		return nil, err
	}
	client, err := step.Kube(r, access)
	if err != nil {
		return nil, err
	}
	objects, err := kube.ReadObjects([]byte(keptObjects))
	if err != nil {
		return nil, err
	}
	for i, obj := range objects {
		if objects[i], err = client.Live(ctx, obj); err != nil {
			return nil, fault.AdviseMore(fmt.Errorf("asking the API server with %s: %w", administratorConf, err), "try another master: --address")
		}
	}
	identity, kept := objects[0], objects[1]
	if identity == nil {
		err := errors.New("the cluster does not say who it is: it has no ConfigMap kube-system/kubexm")
		return nil, fault.Advise(err, "give the address of a master of a cluster that kubexm has made")
	}
	is := &Recovered{Cluster: stringIn(identity, "data", "name"), ID: stringIn(identity, "data", "id")}
	k, err := keptIn(kept)
	if err == nil && k.Text == nil {
		err = errors.New("it was too large")
		if kept == nil {
			err = errors.New("there is no Secret kube-system/" + config.KeptSecret + ", as no run of a kubexm that writes it has ended well yet")
		}
	}
	if err != nil {
		err = fmt.Errorf("cluster %s (ID %s) has not kept its configuration: %w", is.Cluster, is.ID, err)
		return nil, fault.Advise(err, "write it anew: `kubectl get nodes -o wide` on the master names the machines, /var/lib/kubexm/kubeadm.yaml or the units of systemd the rest")
	}
	is.Kubexm, is.Config, is.Secrets, is.Outside = k.Kubexm, string(k.Text), k.Secrets, config.Outside(k.Text)
	return is, nil
}

// administrator is how the administrator of a cluster reaches the API on one of its masters: by the name of the endpoint, which leads to the master
// itself, else at its own port.
func administrator(ctx context.Context, r *runner.Runner) (access kube.Access, err error) {
	files, err := r.ReadFiles(ctx, administratorConf)
	if err != nil {
		return access, err
	}
	conf, ok := files[administratorConf]
	if !ok {
		err := errors.New("it is no master: there is no " + administratorConf)
		return access, fault.Advise(err, "give the address of a master: --address; /etc/hosts on a machine of the cluster has those of all of them")
	}
	server, ca, user, err := pki.LoginOf(conf.Data)
	at, wrong := url.Parse(server)
	if err = errors.Join(err, wrong); err != nil {
		return access, fmt.Errorf("%s: %w", administratorConf, err)
	}
	return kube.Access{
		Address: at.Host, Others: []string{net.JoinHostPort("127.0.0.1", at.Port()), net.JoinHostPort("::1", at.Port())}, ServerName: at.Hostname(), CA: ca,
		Client: func() (*pki.Pair, error) { return user, nil }, Patience: 5 * time.Second,
	}, nil
}

// keptNow is what the cluster keeps of its configuration.
func (s *site) keptNow(ctx context.Context) (k config.Kept, err error) {
	objects, err1 := kube.ReadObjects([]byte(keptObjects))
	client, err2 := step.Kube(s.hosts[plan.API], s.cluster.AnyAPI())
	if err := errors.Join(err1, err2); err != nil {
		return k, err
	}
	is, err := client.Live(ctx, objects[1])
	if err != nil {
		return k, fmt.Errorf("reading the configuration that the cluster keeps: %w", err)
	}
	return keptIn(is)
}

// keptIn reads a Secret; nil has nothing.
func keptIn(obj *unstructured.Unstructured) (k config.Kept, err error) {
	if obj == nil {
		return k, nil
	}
	data := map[string][]byte{}
	values, _, _ := unstructured.NestedStringMap(obj.Object, "data")
	for key, value := range values {
		var wrong error
		data[key], wrong = base64.StdEncoding.DecodeString(value)
		err = errors.Join(err, wrong)
	}
	if err != nil {
		return k, err
	}
	return config.ReadKept(data)
}

func stringIn(obj *unstructured.Unstructured, fields ...string) string {
	text, _, _ := unstructured.NestedString(obj.Object, fields...)
	return text
}
