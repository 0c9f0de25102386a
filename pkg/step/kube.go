package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubexm/kubexm/pkg/chart"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Kube returns a client of the API servers that access names, through the
// host's connection; it is made once for each host, run, trust and set of servers.
func Kube(r *runner.Runner, access kube.Access) (*kube.Client, error) {
	key := "kube " + strings.Join(append([]string{access.Address}, access.Others...), " ") + " " + string(access.CA)
	return runner.Memo(r, key, func() (*kube.Client, error) {
		access.Dial = r.Dial
		return kube.New(access)
	})
}

// Apply ensures Kubernetes objects by server-side apply. Those that an Apply of the same What has made once and that it does not
// name any more are removed.
type Apply struct {
	What      string
	Objects   Content     // YAML documents
	Namespace string      `json:",omitempty"` // of objects that name none; it is made; empty: default
	API       kube.Access `json:"-"`
}

func (a Apply) String() string { return "apply " + a.What }

// Precheck asks the API server what applying would change.
func (a Apply) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	client, err := Kube(r, a.API)
	if err != nil {
		return nil, err
	}
	objects, err := a.read(ctx, client)
	if err != nil {
		return nil, err
	}
	diff, err := client.DiffSet(ctx, a.What, objects...)
	if err != nil || diff == "" {
		return nil, err
	}
	return &Change{Diff: diff, Run: func(ctx context.Context) error { return client.ApplySet(ctx, a.What, objects...) }}, nil
}

func (a Apply) read(ctx context.Context, client *kube.Client) ([]*unstructured.Unstructured, error) {
	objects, err := kube.ReadObjects(a.Objects)
	if err != nil {
		return nil, fmt.Errorf("reading the objects of %s: %w", a.What, err)
	}
	if a.Namespace != "" {
		objects, err = client.InNamespace(ctx, a.Namespace, objects)
	}
	kube.Mark(objects)
	return objects, err
}

// Owns is that it applies objects, see Unapplied.
func (a Apply) Owns() ([]string, error) { return []string{a.What}, nil }

// ApplyFile is Apply of the objects in a file of the store.
type ApplyFile struct {
	What  string
	File  resource.Artifact
	Store *resource.Store
	API   kube.Access `json:"-"`
}

func (a ApplyFile) String() string { return "apply " + a.What }

// Precheck reads the file, and asks as Apply does.
func (a ApplyFile) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	files, err := a.Store.Programs(ctx, a.File)
	if err != nil {
		return nil, err
	}
	apply := Apply{What: a.What, API: a.API}
	for _, f := range files {
		text, err := os.ReadFile(f.Path)
		if err != nil {
			return nil, err
		}
		apply.Objects = append(append(apply.Objects, text...), "\n---\n"...)
	}
	return apply.Precheck(ctx, r)
}

// ApplyChart is Apply of what a Helm chart in the store renders. Hooks of it are left out.
type ApplyChart struct {
	What       string // and the name of the release
	File       resource.Artifact
	Namespace  string
	Kubernetes string  // version
	Values     Content // JSON
	Store      *resource.Store
	API        kube.Access `json:"-"`
}

func (a ApplyChart) String() string { return "apply " + a.What }

// Precheck renders the chart, and asks as Apply does.
func (a ApplyChart) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	files, err := a.Store.Programs(ctx, a.File)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	if err := json.Unmarshal(a.Values, &values); err != nil {
		return nil, err
	}
	release := chart.Release{Name: a.What, Namespace: a.Namespace, Kubernetes: a.Kubernetes, Values: values}
	parts, err := chart.Render(ctx, files[0].Path, release)
	if err != nil {
		return nil, err
	}
	apply := Apply{What: a.What, Namespace: a.Namespace, API: a.API}
	for _, p := range parts {
		if p.Name == "" {
			apply.Objects = p.Objects
		}
	}
	return apply.Precheck(ctx, r)
}

// Owns is as of Apply.
func (a ApplyChart) Owns() ([]string, error) { return []string{a.What}, nil }

// Owns is as of Apply.
func (a ApplyFile) Owns() ([]string, error) { return []string{a.What}, nil }

// Unapplied removes the objects that an Apply has applied which is no part of the plan any more.
type Unapplied struct {
	Wanted []string    // what there are Applies of
	API    kube.Access `json:"-"`
}

func (Unapplied) String() string { return "no objects of what is no longer wanted" }

// Precheck asks the API server what was applied.
func (u Unapplied) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	client, err := Kube(r, u.API)
	if err != nil {
		return nil, err
	}
	names, err := client.OtherSets(ctx, u.Wanted...)
	if err != nil || names == nil {
		return nil, err
	}
	var text strings.Builder
	for _, name := range names {
		diff, err := client.DiffSet(ctx, name)
		if err != nil {
			return nil, err
		}
		text.WriteString(diff)
	}
	if text.Len() == 0 { // what is left of them has objects of others
		return nil, nil
	}
	return &Change{Diff: text.String(), Run: func(ctx context.Context) error {
		for _, name := range names {
			if err := client.ApplySet(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

// RolledOut waits until workloads do what they are there for.
type RolledOut struct {
	What      string
	Objects   Content     // YAML documents; only workloads are waited for
	Namespace string      `json:",omitempty"` // as of Apply
	API       kube.Access `json:"-"`
}

// waitedFor are the kinds of workloads, and definitions. A claim may wait for its first pod, and who knows what others wait for.
var waitedFor = []string{"CustomResourceDefinition", "DaemonSet", "Deployment", "Job", "Pod", "StatefulSet"}

func (o RolledOut) String() string { return "wait for " + o.What }

// Precheck asks for the state of the objects.
func (o RolledOut) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	client, err := Kube(r, o.API)
	if err != nil {
		return nil, err
	}
	objects, err := Apply{What: o.What, Objects: o.Objects, Namespace: o.Namespace}.read(ctx, client)
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return !slices.Contains(waitedFor, o.GetKind()) })
	missing, err := client.NotReady(ctx, objects...)
	if err != nil || missing == "" {
		return nil, err
	}
	return &Change{
		Diff: "wait: " + missing, Verify: Verified,
		Run: func(ctx context.Context) error { return client.WaitReady(ctx, objects...) },
	}, nil
}

// Marked ensures labels and taints of a node.
type Marked struct {
	Node  string
	Marks kube.Marks
	API   kube.Access `json:"-"`
}

func (m Marked) String() string { return "labels and taints of " + m.Node }

// Precheck reads the node.
func (m Marked) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	client, err := Kube(r, m.API)
	if err != nil {
		return nil, err
	}
	diff, err := client.DiffMarks(ctx, m.Node, m.Marks)
	if err != nil || diff == "" {
		return nil, err
	}
	return &Change{Diff: diff, Run: func(ctx context.Context) error { return client.MarkNode(ctx, m.Node, m.Marks) }}, nil
}

// NodeReady waits until a node is Ready.
type NodeReady struct {
	Node string
	API  kube.Access `json:"-"`
}

func (n NodeReady) String() string { return "wait for node " + n.Node }

// Precheck reads the node.
func (n NodeReady) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	client, err := Kube(r, n.API)
	if err != nil {
		return nil, err
	}
	missing, err := client.NodeNotReady(ctx, n.Node)
	if err != nil || missing == "" {
		return nil, err
	}
	return &Change{
		Diff: "wait: " + missing, Verify: Verified,
		Run: func(ctx context.Context) error { return client.WaitNodeReady(ctx, n.Node) },
	}, nil
}

// APIReady waits until the API server says that it is ready.
type APIReady struct {
	API    kube.Access `json:"-"`
	Advice string      `json:"-"` // for when it does not become so; empty: what package kube has
}

func (APIReady) String() string { return "wait for the API server" }

// MarshalJSON tells which one.
func (a APIReady) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"at": a.API.Address})
}

// Precheck asks once.
func (a APIReady) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	client, err := Kube(r, a.API)
	if err != nil {
		return nil, err
	}
	missing := client.APIReady(ctx)
	if missing == nil {
		return nil, nil
	}
	return &Change{Diff: "wait: " + missing.Error(), Verify: Verified, Run: func(ctx context.Context) error {
		err := client.WaitAPIReady(ctx)
		if err != nil && a.Advice != "" {
			err = fault.Advise(errors.New(err.Error()), a.Advice)
		}
		return err
	}}, nil
}

// APIPort ensures that the service kubernetes leads to a port of API servers.
type APIPort struct {
	Port int
	API  kube.Access `json:"-"`
}

func (p APIPort) String() string { return fmt.Sprintf("service kubernetes leads to port %d", p.Port) }

// Precheck asks the API server.
func (p APIPort) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	client, err := Kube(r, p.API)
	if err != nil {
		return nil, err
	}
	diff, err := client.DiffAPIPort(ctx, p.Port)
	if err != nil || diff == "" {
		return nil, err
	}
	return &Change{Diff: diff, Run: func(ctx context.Context) error { return client.SetAPIPort(ctx, p.Port) }}, nil
}
