// Package registry holds the steps that run the private image registry, and bring images to it.
package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/registry"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

const (
	dir             = "/etc/registry/"
	binDir          = "/usr/local/bin"
	transferTimeout = 2 * time.Hour // all images, through one connection
)

// Steps install and run the registry of the project Distribution. What nodes see is read-only: images are taken by a second service beside
// it, on the host's loopback, with a password that no node has.
func Steps(c *cluster.Cluster, host string) []step.Step {
	return []step.Step{Programs(c, host), DataDir(c), Service(c, host), PushService(c, host), Answers(c, c.Registry()), Answers(c, c.RegistryPush())}
}

// Programs puts the registry's program on its host.
func Programs(c *cluster.Cluster, host string) step.Step {
	u := step.Upload{What: "registry", Store: c.Store, Programs: []step.Programs{{Artifact: c.Artifact("registry", host), Dir: binDir}}}
	return step.With(u, step.Options{Limit: step.LimitTransfer})
}

// DataDir makes the directory of the images. Containers with users of their own see it as a whole.
func DataDir(c *cluster.Cluster) step.Step {
	d := step.Dir{Path: c.Spec.Registry.DataDir, Mode: 0o700}
	if plugin.RegistryOf(c.Spec).Docker {
		d.Mode = 0o755
	}
	return d
}

// Service runs the registry that nodes pull from.
func Service(c *cluster.Cluster, host string) step.Step {
	return service(c, host, serves{c.Registry(), fmt.Sprintf(":%d", c.RegistryPort()), cluster.RegistryUser, dir, true})
}

// PushService runs the registry that takes images.
func PushService(c *cluster.Cluster, host string) step.Step {
	at := c.RegistryPush()
	return service(c, host, serves{at, at.Address, at.User, dir + "push/", false})
}

// serves is what differs between the services of the registry.
type serves struct {
	as       registry.Private
	listen   string
	hash     string // that the keys of the cluster keep of its password, by name
	dir      string // of its own files
	readOnly bool
}

// service runs the registry, as root without root's powers: it reads a key that is root's alone, and may have
// a port below 1024.
func service(c *cluster.Cluster, host string, s serves) step.Step {
	unit := step.Unit{
		Name: s.as.Unit, Description: "Private image registry", Documentation: "https://distribution.github.io/distribution",
		After: "network-online.target", Command: binDir + "/registry serve " + s.dir + "config.yml",
		Settings: append(step.Limits(c.FactsOf(host).CanRaiseLimits(), "-900"),
			"Environment=OTEL_TRACES_EXPORTER=none", "NoNewPrivileges=yes", "CapabilityBoundingSet=CAP_NET_BIND_SERVICE"),
		Reads: []step.Step{Programs(c, host)},
	}.Service()
	unit.Files = files(c, s)
	return unit
}

// files are the configuration, the certificate and the users of a service of the registry.
func files(c *cluster.Cluster, s serves) []step.File {
	cert := c.Leaf(c.RegistryCert())
	hash, err := c.Certs.Hash(pki.Registry, s.hash, s.as.Password)
	c.Check(err)
	secret, err := c.Certs.Password(pki.Registry, "http") // uploads outlive a restart
	c.Check(err)
	config := templates.Render("registry/config", struct {
		Dir, Secret, Cert, Key, Users, Listen string
		ReadOnly                              bool
	}{c.Spec.Registry.DataDir, secret.Reveal(), s.dir + "tls.crt", s.dir + "tls.key", s.dir + "htpasswd", s.listen, s.readOnly})
	return []step.File{
		{Path: s.dir + "config.yml", Content: config, Mode: 0o600},
		{Path: s.dir + "htpasswd", Content: step.Content(s.as.User + ":" + hash + "\n"), Mode: 0o600},
		{Path: s.dir + "tls.crt", Content: cert.Cert, Mode: 0o644},
		{Path: s.dir + "tls.key", Content: step.Content(cert.Key.Reveal()), Mode: 0o600},
	}
}

// Answers waits until the registry answers. One in containers makes a database first.
func Answers(c *cluster.Cluster, at registry.Private) step.Step {
	patience := 3 * time.Minute
	if plugin.RegistryOf(c.Spec).Docker {
		patience = 10 * time.Minute
	}
	return step.With(answers{at}, step.Options{Timeout: patience})
}

type answers struct{ Registry registry.Private }

func (a answers) String() string { return "wait for " + a.Registry.Unit }

// Precheck asks once.
func (a answers) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	a.Registry.Dial = r.Dial
	why := a.Registry.Ping(ctx)
	if why == nil {
		return nil, nil
	}
	return &step.Change{Diff: "wait: " + why.Error(), Verify: step.Verified, Run: func(ctx context.Context) error {
		for pause := 50 * time.Millisecond; why != nil; pause = min(2*pause, time.Second) {
			select {
			case <-ctx.Done():
				err := fmt.Errorf("%w: %w\n%s", context.Cause(ctx), why, step.Journal(context.WithoutCancel(ctx), r, a.Registry.Unit))
				return fault.Advise(err, "look at the host: journalctl -u "+a.Registry.Unit)
			case <-time.After(pause):
				why = a.Registry.Ping(ctx)
			}
		}
		return nil
	}}, nil
}

// Images brings images of the store to the registry, through the connection to its host.
func Images(c *cluster.Cluster, refs []string) step.Step {
	return step.With(pushed{Names: refs, Registry: c.RegistryPush(), Store: c.Store}, step.Options{Timeout: transferTimeout, Limit: step.LimitTransfer})
}

// pushed ensures that the registry has images as the store has them.
type pushed struct {
	Names    []string
	Registry registry.Private
	Store    *resource.Store
}

func (p pushed) String() string { return "images in " + p.Registry.Name }

// Precheck compares digests. A registry that does not answer yet has nothing: pushing then tells why.
func (p pushed) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	p.Registry.Dial = r.Dial
	lacks, err := p.Store.Lacks(ctx, p.Registry, p.Names...)
	if ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		lacks = slices.Clone(p.Names)
	}
	if len(lacks) == 0 {
		return nil, nil
	}
	return &step.Change{
		Diff: "+ " + strings.Join(lacks, "\n+ "),
		Run:  func(ctx context.Context) error { return p.Store.Push(ctx, p.Registry, step.Progress(ctx), lacks...) },
	}, nil
}
