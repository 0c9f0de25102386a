package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/pipeline"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/registry"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// registrySite is a cluster with the host of its private registry connected, and no other; alone: the cluster's lock is
// taken. Only what create has made counts: the authority of the cluster's own is what tells its registry from that of another.
func (a *App) registrySite(ctx context.Context, r Request, o Observer, alone bool) (_ *site, _ *runner.Runner, err error) {
	opened, err := a.open(ctx, r, o)
	if err != nil {
		return nil, nil, err
	}
	c, err := opened.planning(ctx, nil, v1alpha1.Source{Offline: true})
	if err != nil {
		return nil, nil, err
	}
	c.Certs.Existing = true
	host := c.RegistryHost()
	if host == "" {
		err := fmt.Errorf("cluster %s has no private registry", c.Name)
		return nil, nil, fault.Exit(fault.Advise(err, "give a host the role registry, and run kubexm create cluster"), fault.ExitUsage)
	}
	enter := opened.made
	if alone {
		enter = opened.lock
	}
	w, err := enter()
	if err != nil {
		return nil, nil, err
	}
	s := &site{work: w, fleet: opened.fleet(), cluster: c}
	w.ends = append(w.ends, s.hangUp)
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if err := w.checkMade(); err != nil {
		return nil, nil, err
	}
	c.Registry()
	if err := c.Err(); err != nil {
		return nil, nil, fmt.Errorf("the private registry of cluster %s does not exist yet: %w", c.Name, err)
	}
	if err := s.dial(ctx, c.Host(host)); err != nil {
		return nil, nil, &HostError{host, err}
	}
	return s, s.hosts[host], nil
}

// PushImages brings images of the store to the cluster's private registry, by default all that the store has.
// What is there already is left alone. It holds the cluster's lock: delete empties what it fills.
func (a *App) PushImages(ctx context.Context, req Request, o Observer, refs []string) (*Result, error) {
	s, r, err := a.registrySite(ctx, req, o, true)
	if err != nil {
		return nil, err
	}
	defer s.close()
	have, err := s.cluster.Store.Images()
	if err != nil {
		return nil, err
	}
	if len(have) == 0 {
		return nil, fault.Advise(errors.New("the store has no image"), "run kubexm download first, or kubexm import")
	}
	for _, ref := range refs {
		if slices.Contains(have, ref) {
			continue
		}
		advice := "kubexm images list shows what the cluster needs; the store has " + human.Names(have, 10)
		if near := config.Nearest(ref, have); near != "" {
			advice = "did you mean " + near + "?"
		}
		return nil, fault.Exit(fault.Advise(fmt.Errorf("image %s is not in the store", ref), advice), fault.ExitUsage)
	}
	if len(refs) == 0 {
		refs = have
	}
	if req.DryRun { // the engine takes what cannot be looked at for what steps ahead of it will make
		at := s.cluster.RegistryPush()
		at.Dial = r.Dial
		if _, err := s.cluster.Store.Lacks(ctx, at, refs...); err != nil {
			return nil, err
		}
	}
	res := &Result{Cluster: s.config.Metadata.Name}
	graph := pipeline.Push(s.cluster, refs)
	if err := s.cluster.Err(); err != nil {
		return nil, err
	}
	return res, s.runOn(ctx, graph, res, func(string) (*runner.Runner, error) { return r, nil })
}

// RegistryContent is what is in a private registry.
type RegistryContent struct {
	Registry string            `json:"registry"`
	Images   []registry.Tagged `json:"images"`
}

// ListRegistry tells what is in the cluster's private registry.
func (a *App) ListRegistry(ctx context.Context, req Request, o Observer) (*RegistryContent, error) {
	s, r, err := a.registrySite(ctx, req, o, false)
	if err != nil {
		return nil, err
	}
	defer s.close()
	at := s.cluster.Registry()
	at.Dial = r.Dial
	images, err := at.List(ctx)
	return &RegistryContent{at.Name, images}, errors.Join(err, s.cluster.Err())
}

// NeededImages is what images a cluster needs.
type NeededImages struct {
	Cluster  string        `json:"cluster"`
	Registry string        `json:"registry,omitempty"` // the private one
	Images   []NeededImage `json:"images"`
}

// NeededImage is an image that nodes of an architecture need.
type NeededImage struct {
	Image      string `json:"image"`
	Arch       string `json:"arch"`
	InStore    bool   `json:"inStore"`
	Size       int64  `json:"size"`                 // bytes; -1: not known, as it is not in the store
	InRegistry *bool  `json:"inRegistry,omitempty"` // as the store has it; nil: there is none, or it cannot be told
}

// Images tells what images a cluster needs, which of them are in the store, and which in its private registry. Of hosts whose
// architecture is not configured it is one of archs, by default amd64. No host but that of the registry is asked.
func (a *App) Images(ctx context.Context, r Request, o Observer, archs []string) (*NeededImages, error) {
	u := a.use(r, o)
	sel := Selection{Archs: archs}
	confs, err := u.selected(&sel)
	if err != nil {
		return nil, err
	}
	store, err := openStore(a.Workdir, v1alpha1.Source{Offline: true})
	if err != nil {
		return nil, err
	}
	clusters, err := u.onArchs(ctx, confs[0], store, sel.Archs)
	if err != nil {
		return nil, err
	}
	items, err := needed(clusters...)
	if err != nil {
		return nil, err
	}
	stock, err := store.Look(ctx, slices.DeleteFunc(items, func(i resource.Item) bool { return i.Image == "" }), false)
	if err != nil {
		return nil, err
	}
	list := &NeededImages{Cluster: confs[0].Metadata.Name, Images: []NeededImage{}}
	for _, i := range stock {
		list.Images = append(list.Images, NeededImage{Image: i.Image, Arch: i.Arch, InStore: i.There, Size: i.Size})
	}
	if clusters[0].RegistryHost() != "" {
		list.Registry = confs[0].Spec.Registry.PrivateRegistry
		if err := list.look(ctx, u); err != nil {
			u.notice("warning: the contents of %s cannot be listed: %v", list.Registry, err)
		}
	}
	return list, nil
}

// look asks the private registry for the images that are in the store.
func (l *NeededImages) look(ctx context.Context, u *use) error {
	s, r, err := u.app.registrySite(ctx, u.Request, u.Observer, false)
	if err != nil {
		return err
	}
	defer s.close()
	var refs []string
	for _, i := range l.Images {
		if i.InStore && !slices.Contains(refs, i.Image) {
			refs = append(refs, i.Image)
		}
	}
	at := s.cluster.Registry()
	at.Dial = r.Dial
	lacks, err := s.cluster.Store.Lacks(ctx, at, refs...)
	if err != nil {
		return err
	}
	for n := range l.Images {
		if i := &l.Images[n]; i.InStore {
			i.InRegistry = new(!slices.Contains(lacks, i.Image))
		}
	}
	return nil
}
