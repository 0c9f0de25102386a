package app

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kubexm/kubexm/pkg/kube"
)

// asking is the time from one question of a watch to the next.
const asking = 200 * time.Millisecond

// apiWatch asks all the time whether the API server answers, as nodes know it.
type apiWatch struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	last   time.Time // when it answered
	away   time.Duration
}

// watchAPI watches the API server from a host that is not a master, where there is one, while what it depends on
// is restarted.
func (s *site) watchAPI(ctx context.Context, p *Proposal) *apiWatch {
	w := &apiWatch{cancel: func() {}}
	if p.Away == "" || s.DryRun {
		return w
	}
	for _, h := range slices.Concat(s.cluster.Workers(), s.cluster.Masters()) {
		r := s.hosts[h]
		if r == nil {
			continue
		}
		access := s.cluster.EndpointAPI()
		access.Dial, access.Patience, access.Others = r.Dial, time.Millisecond, s.cluster.AtFormerPorts(access.Address)
		client, err := kube.New(access)
		if err != nil {
			return w
		}
		ctx, w.cancel = context.WithCancel(kube.Impatient(ctx))
		w.last = time.Now()
		w.done.Go(func() { defer client.Close(); w.ask(ctx, client) })
		break
	}
	return w
}

func (w *apiWatch) ask(ctx context.Context, client *kube.Client) {
	for ctx.Err() == nil {
		client.Close() // a new connection each time, as new users have
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		at := time.Now()
		err := client.APIReady(one)
		cancel()
		if err != nil {
			at = time.Now()
		}
		if ctx.Err() == nil || err == nil { // else the end of the watch is why
			w.away = max(w.away, at.Sub(w.last))
		}
		if err == nil {
			w.last = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(asking):
		}
	}
}

// end ends the watch, and returns for how long the API server did not answer at most: about the time
// between two questions when it was never away; 0: nobody asked.
func (w *apiWatch) end() time.Duration {
	w.cancel()
	w.done.Wait()
	return w.away
}
