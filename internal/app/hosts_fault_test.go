package app_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// TestKilledMoves kills kubexm at a node of a move, and lets it go on.
func TestKilledMoves(t *testing.T) {
	eachMove(t, []string{"row7/another first master", "row9/one master", "row9/a worker for a master"}, killedMove(1))
}

// TestFaultsKilledMoves does so at many.
func TestFaultsKilledMoves(t *testing.T) {
	eachMove(t, []string{
		"row7/another first master", "row7/five masters", "row7/one master", "row9/one master", "row9/another first master", "row9/a worker", "row9/a worker for a master",
		"row21/a load balancer", "row22/one master", "etcd-elsewhere/members elsewhere",
	}, killedMove(4))
}

// TestCutMoves takes the power from a machine in the middle of a script of a move. It boots, and kubexm goes on.
func TestCutMoves(t *testing.T) {
	eachMove(t, []string{"row9/another first master"}, cutMove(1))
}

// TestFaultsCutMoves does so in many.
func TestFaultsCutMoves(t *testing.T) {
	eachMove(t, []string{
		"row7/another first master", "row9/one master", "row9/another first master", "row21/a load balancer", "etcd-elsewhere/members elsewhere",
	}, cutMove(6))
}

// undisturbedMove is how a cluster is led from one configuration to another.
type undisturbedMove struct {
	name    string
	way     [2]string
	nodes   int      // of the graph
	scripts []script // those that change something
}

// script is one of a machine.
type script struct {
	host        string
	first, last int64 // how many commands had run there before it, and when it ended
}

// disturbedMove tests a move at some moments on the way there, and at as many on the way back.
func disturbedMove(most int, last func(undisturbedMove) int, test func(*testing.T, undisturbedMove, int)) func(*testing.T, string, [2]string) {
	return func(t *testing.T, name string, pair [2]string) {
		for _, way := range [][2]string{pair, {pair[1], pair[0]}} {
			w, _ := between(t, way)
			for _, h := range w.hosts {
				h.Cut = &runnertest.Kill{}
			}
			w.configure(way[1])
			a, is := w.attempt(t.Context()), undisturbedMove{name: name, way: way}
			var mu sync.Mutex
			a.around = func(h *runnertest.Host, ctx context.Context, c connector.Cmd) error {
				before, first := len(h.Log()), h.Cut.Count()
				err := h.Exec(ctx, c)
				mu.Lock()
				defer mu.Unlock()
				if last := h.Cut.Count(); len(h.Log()) > before && last > first {
					is.scripts = append(is.scripts, script{h.Name, first, last})
				}
				return err
			}
			res, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil)
			w.must(err)
			is.nodes = res.Summary.Total
			for _, m := range moments(t, last(is), most) {
				if test(t, is, m); t.Failed() {
					t.Fatalf("at moment %d of the way to\n%s", m, way[1])
				}
			}
		}
	}
}

// killedMove begins nodes, and kills kubexm.
func killedMove(most int) func(*testing.T, string, [2]string) {
	return disturbedMove(most, func(is undisturbedMove) int { return is.nodes }, func(t *testing.T, is undisturbedMove, m int) {
		w, before := between(t, is.way)
		chronicle := w.moving(is.way[1])
		w.configure(is.way[1])
		a := w.attempt(t.Context())
		a.killAt(m)
		_, _ = a.App.Apply(a.ctx, a.Request, a.Observer, nil) // what is skipped is no node that starts
		w.apply()
		chronicle.apart(t)
		w.arrived(t, is.name, is.way[1], before)
	})
}

// cutMove runs scripts, and takes the power from their machines.
func cutMove(most int) func(*testing.T, string, [2]string) {
	return disturbedMove(most, func(is undisturbedMove) int { return len(is.scripts) }, func(t *testing.T, is undisturbedMove, m int) {
		s := is.scripts[m-1]
		after := s.first + rand.New(rand.NewPCG(*seed, uint64(m))).Int64N(s.last-s.first)
		w, before := between(t, is.way)
		chronicle := w.moving(is.way[1])
		w.configure(is.way[1])
		h, a := w.hosts[s.host], w.attempt(t.Context())
		h.Cut = &runnertest.Kill{After: after, Then: func() {
			w.lose(s.host)
			a.hangUp()
		}}
		_, err := a.App.Apply(a.ctx, a.Request, a.Observer, nil)
		t.Logf("without power from command %d on %s: %v", after, s.host, err) // it may have been needed no more
		w.unwatched()
		chronicle.apart(t)
		h.Reboot()
		w.apply()
		if !hostsOf(is.way[1])[s.host] {
			fresh := newWorld(t, is.way[0]+is.way[1], "").hosts[s.host]
			fresh.Reboot()
			before[s.host] = fresh.Snapshot()
		}
		w.arrived(t, is.name, is.way[1], before)
	})
}
