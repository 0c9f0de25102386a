package app

import (
	"context"
	"strings"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/step/kubelet"
)

// configurations are those of the runs of an apply, one after the other.
func (w *work) configurations(turns []turn) (all []*v1alpha1.Cluster, err error) {
	for _, t := range turns[:max(0, len(turns)-1)] {
		conf, _, err := config.Parse(w.file, t.in.given)
		if err != nil {
			return nil, err
		}
		all = append(all, conf)
	}
	return append(all, w.config), nil
}

// Prefetch finds out what an upgrade needs of the store, for all of its runs, as NewDownload does. No host is asked.
func (a *App) Prefetch(ctx context.Context, r Request, o Observer, set map[string]string) (*Download, error) {
	w, _, turns, err := a.beginLook(ctx, r, o, set)
	if err != nil {
		return nil, err
	}
	defer w.close()
	confs, err := w.configurations(turns)
	if err != nil {
		return nil, err
	}
	known, err := w.records.Facts()
	if err != nil {
		return nil, err
	}
	for _, conf := range confs {
		for i := range conf.Spec.Hosts {
			if h := &conf.Spec.Hosts[i]; h.Arch == "" && known[h.Name] != nil {
				h.Arch = known[h.Name].Arch
			}
		}
	}
	return w.download(ctx, confs, Selection{})
}

// fetching finds what the runs with these configurations download.
func (s *site) fetching(ctx context.Context, confs []*v1alpha1.Cluster) ([]Fetching, error) {
	var items []resource.Item
	of := map[resource.Item]int{} // the first run that needs it
	for n, conf := range confs {
		needs, err := needed(cluster.New(conf, s.dir, s.cluster.Store, s.cluster.Facts))
		if err != nil {
			return nil, err
		}
		for _, i := range needs {
			if _, before := of[i]; !before {
				of[i], items = n, append(items, i)
			}
		}
	}
	stock, err := s.cluster.Store.Look(ctx, items, true)
	all := make([]Fetching, len(confs))
	for _, i := range stock {
		if f := &all[of[i.Item]]; !i.There {
			f.Items, f.Bytes = append(f.Items, i), f.Bytes+max(i.Size, 0)
		}
	}
	return all, err
}

// lasts is about how long runs of an upgrade take that drain some nodes, by the last upgrade that ended well; 0: there is none.
func (w *work) lasts(runs, drains int) (time.Duration, error) {
	history, err := w.records.History()
	if err != nil {
		return 0, err
	}
	for i := len(history) - 1; i > 0; i-- {
		last := history[i].Run
		if last.Result != "ok" || last.Ended == nil || !newer(history[i-1], history[i]) {
			continue
		}
		nodes, drained, err := w.drained(last)
		if err != nil || nodes == 0 && drains > 0 {
			return 0, err
		}
		return last.Ended.Sub(last.Started)*time.Duration(runs) - drained*time.Duration(runs) + drained/time.Duration(max(nodes, 1))*time.Duration(drains), nil
	}
	return 0, nil
}

// newer reports whether a configuration that was applied has a newer Kubernetes than the one before.
func newer(was, is store.Revision) bool {
	before, err1 := releaseOf(was)
	now, err2 := releaseOf(is)
	return err1 == nil && err2 == nil && !config.Same(before.Kubernetes, now.Kubernetes) && config.Older(before.Kubernetes, now.Kubernetes) == before.Kubernetes
}

// drained is how many nodes a run has drained, and the time from the first drain to the end of the last one.
func (w *work) drained(run store.Run) (nodes int, took time.Duration, err error) {
	var first, last time.Time
	err = w.records.Events(run, 0, func(_ int64, ev engine.Event) error {
		switch {
		case ev.Status != engine.Changed:
		case strings.HasSuffix(ev.Task, "/drain") && first.IsZero():
			first = ev.Time.Add(-ev.Duration)
		case ev.What == kubelet.Uncordoned{}.String():
			nodes, last = nodes+1, ev.Time
		}
		return nil
	})
	return nodes, max(0, last.Sub(first)), err
}
