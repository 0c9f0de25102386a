package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/etcd/etcdtest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

const peer4 = "https://10.0.0.4:2380"

// at is a client of a member.
func (c *three) at(t *testing.T, endpoint string) *etcd.Client {
	t.Helper()
	client, err := etcd.New(c.access(endpoint))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func (c *three) down(m *etcdtest.Member) (is bool) {
	c.Set(m, func(m *etcdtest.Member) { is = m.Down })
	return is
}

// start is the process of the member that AddLearner named.
func (c *three) start(t *testing.T) *etcdtest.Member {
	t.Helper()
	m, err := c.Start(peer4, "node3", "https://10.0.0.3:2379") // another node3: its certificate is at hand
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestReplace has a dead member replaced by a new one, and the leader removed.
func TestReplace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newThree(t)
		ctx, client := t.Context(), c.at(t, "https://10.0.0.1:2379")
		dead := c.members[2]
		c.Set(dead, func(m *etcdtest.Member) { m.Down = true })
		if _, _, err := client.AddLearner(ctx, peer4); !fault.IsTransient(err) || !strings.Contains(fmt.Sprint(err), "connected") || fault.Advice(err) == "" {
			t.Errorf("adding while one is down: %v", err)
		}
		for range 2 {
			if err := client.Remove(ctx, dead.ID()); err != nil {
				t.Errorf("removing the dead one: %v", err)
			}
		}
		if err := c.Restart(dead); err == nil || err.Error() != "the member has been permanently removed from the cluster" {
			t.Errorf("restarting what was removed: %v", err)
		}
		c.Set(dead, func(m *etcdtest.Member) { m.Down = false })
		if !c.down(dead) || !c.Removed(dead.ID()) {
			t.Error("what was removed is back")
		}

		added, all, err := client.AddLearner(ctx, peer4)
		if err != nil || added.ID != 5 || added.Started() || !added.Learner || !slices.Equal(added.PeerURLs, []string{peer4}) || len(all) != 3 || all[2].ID != 5 {
			t.Fatalf("added: %+v, %+v, %v", added, all, err)
		}
		view := etcd.Survey(ctx, c.endpoints(2))
		if m := view.ByPeer(peer4); m == nil || m.Member.ID != 5 || m.Err == nil || m.Started() || view.ByPeer("https://10.0.0.5:2380") != nil {
			t.Errorf("by peer URL: %+v", m)
		}
		if err := client.Promote(ctx, added.ID); !fault.IsTransient(err) || !strings.Contains(fmt.Sprint(err), "not in sync") {
			t.Errorf("promoting what has not started: %v", err)
		}
		c.members[2] = c.start(t)
		if err := client.Promote(ctx, added.ID); !fault.IsTransient(err) {
			t.Errorf("promoting what has just started: %v", err)
		}
		time.Sleep(etcdtest.CatchUp)
		view = etcd.Survey(ctx, c.endpoints(3))
		if m := view.ByPeer(peer4); m == nil || m.Err != nil || !m.Started() || view.Allows(etcd.Promotion, *m) != nil {
			t.Errorf("a learner in sync: %+v", m)
		}
		for range 2 {
			if err := client.Promote(ctx, added.ID); err != nil {
				t.Errorf("promoting: %v", err)
			}
		}
		if err := client.Move(ctx, added.ID, "https://10.0.0.3:2380"); err != nil || etcd.Survey(ctx, c.endpoints(1)).ByPeer("https://10.0.0.3:2380") == nil {
			t.Errorf("moving: %v", err)
		}
		time.Sleep(etcdtest.HealthInterval)
		if err := client.Remove(ctx, c.members[0].ID()); err != nil || c.Leader() != "node2" { // of itself, and it leads
			t.Errorf("removing the leader: %v, now it is %s", err, c.Leader())
		}
		time.Sleep(2 * time.Second)
		if !c.down(c.members[0]) {
			t.Error("what was removed goes on")
		}
		want := []string{"remove node3", "add node3", "promote node3", "move node3", "remove node1"}
		if got := c.History(); !slices.Equal(got, want) {
			t.Errorf("history: %q", got)
		}
	})
}

// TestRefusedChange has what etcd refuses, and what it does not answer.
func TestRefusedChange(t *testing.T) {
	down := func(m *etcdtest.Member) { m.Down = true }
	up := func(m *etcdtest.Member) { m.Down = false }
	add := func(ctx context.Context, c *etcd.Client) error { _, _, err := c.AddLearner(ctx, peer4); return err }
	remove := func(id uint64) func(context.Context, *etcd.Client) error {
		return func(ctx context.Context, c *etcd.Client) error { return c.Remove(ctx, id) }
	}
	promote := func(id uint64) func(context.Context, *etcd.Client) error {
		return func(ctx context.Context, c *etcd.Client) error { return c.Promote(ctx, id) }
	}
	learner := func(i int) func(*three) {
		return func(c *three) { c.Set(c.members[i], func(m *etcdtest.Member) { m.Learner = true }) }
	}
	const unhealthy = "too few of the members that vote are connected to this one, or for less than 5 seconds"
	for name, test := range map[string]struct {
		spoil   func(*three)
		change  func(context.Context, *etcd.Client) error
		want    string
		passing bool
		passes  time.Duration // after which it is done
	}{
		"a learner is there": {learner(2), add, "another member is still a learner, and etcd takes one at a time (--max-learners)", false, 0},
		"just came up":       {func(c *three) { c.Set(c.members[2], down); c.Set(c.members[2], up) }, add, unhealthy, true, 6 * time.Second},
		"the asked came up":  {func(c *three) { c.Set(c.members[0], down); c.Set(c.members[0], up) }, add, unhealthy, true, 6 * time.Second},
		"add, no majority":   {func(c *three) { c.Set(c.members[1], down); c.Set(c.members[2], down) }, add, unhealthy, true, 0},
		"peer URL taken": {func(*three) {}, func(ctx context.Context, c *etcd.Client) error {
			_, _, err := c.AddLearner(ctx, "https://10.0.0.2:2380")
			return err
		}, "another member has that peer address", false, 0},
		"move to a taken URL": {func(*three) {}, func(ctx context.Context, c *etcd.Client) error {
			return c.Move(ctx, 3, "https://10.0.0.2:2380")
		}, "another member has that peer address", false, 0},
		"move nobody": {func(*three) {}, func(ctx context.Context, c *etcd.Client) error { return c.Move(ctx, 9, peer4) }, "etcdserver: member not found", false, 0},
		"bad URL": {func(*three) {}, func(ctx context.Context, c *etcd.Client) error {
			_, _, err := c.AddLearner(ctx, "10.0.0.4")
			return err
		}, "URL scheme must be http, https, unix, or unixs", false, 0},
		"remove one of two that work": {func(c *three) { c.Set(c.members[2], down) }, remove(2), unhealthy, true, 0},
		"remove the last":             {func(c *three) { c.Remove(c.members[1]); c.Remove(c.members[2]) }, remove(1), "too few of the members that would vote have ever started", false, 0},
		"remove, no majority":         {func(c *three) { c.Set(c.members[1], down); c.Set(c.members[2], down) }, remove(3), "no answer in time", true, 0},
		"promote, no majority":        {func(c *three) { learner(2)(c); c.Set(c.members[1], down) }, promote(3), "etcdserver: no leader", true, 0},
		"promote one behind": {func(c *three) {
			c.Set(c.members[2], func(m *etcdtest.Member) { m.Learner, m.Behind = true, 20000 })
		}, promote(3), "the learner is not in sync with the leader yet", true, 0},
		"promote nobody":   {func(*three) {}, promote(9), "etcdserver: member not found", false, 0},
		"ask a learner":    {learner(0), add, "etcdserver: rpc not supported for learner", false, 0},
		"failed on demand": {func(c *three) { c.Before(func(change string) error { return status.Error(codes.Unavailable, change) }) }, add, "add " + peer4, true, 0},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newThree(t)
				test.spoil(c)
				client := c.at(t, "https://10.0.0.1:2379")
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				err := test.change(ctx, client)
				if err == nil || !strings.Contains(err.Error(), " at https://10.0.0.1:2379: "+test.want) || fault.IsTransient(err) != test.passing {
					t.Errorf("transient: %t: %v", fault.IsTransient(err), err)
				}
				if len(c.History()) > 0 {
					t.Errorf("something was changed: %q", c.History())
				}
				if time.Sleep(test.passes); test.passes > 0 {
					if err := test.change(ctx, client); err != nil {
						t.Errorf("later: %v", err)
					}
				}
			})
		})
	}
}

// TestStart has processes that cannot join.
func TestStart(t *testing.T) {
	const peer1, peer2, peer3 = "https://10.0.0.1:2380", "https://10.0.0.2:2380", "https://10.0.0.3:2380"
	for name, test := range map[string]struct {
		peer  string
		peers []string
		spoil func(*three)
		want  string
	}{
		"well":          {peer4, []string{peer4, peer1, peer2, peer3}, nil, ""},
		"not added":     {"https://10.0.0.5:2380", nil, nil, "member count is unequal"},
		"one too few":   {peer4, []string{peer4, peer1, peer2}, nil, "member count is unequal"},
		"another":       {peer4, []string{peer4, peer1, peer2, "https://10.0.0.5:2380"}, nil, "no match found for existing member (3, [https://10.0.0.3:2380])"},
		"lost its data": {peer3, nil, nil, "Was the raft log corrupted, truncated, or lost?"},
		"nobody there": {peer4, nil, func(c *three) {
			for _, m := range c.members {
				c.Set(m, func(m *etcdtest.Member) { m.Down = true })
			}
		}, "could not retrieve cluster information"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newThree(t)
			if _, _, err := c.at(t, "https://10.0.0.1:2379").AddLearner(t.Context(), peer4); err != nil {
				t.Fatal(err)
			}
			if test.spoil != nil {
				test.spoil(c)
			}
			_, err := c.Start(test.peer, "node4", "https://10.0.0.4:2379", test.peers...)
			if got := fmt.Sprint(err); !strings.Contains(got, test.want) || (err == nil) != (test.want == "") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestNoDeadline shows that etcd itself gives no answer while nobody leads.
func TestNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newThree(t)
		for _, m := range c.members[1:] {
			c.Set(m, func(m *etcdtest.Member) { m.Down = true })
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, cancel)
		start := time.Now()
		if err := c.at(t, "https://10.0.0.1:2379").Remove(ctx, 2); !errors.Is(err, context.Canceled) || time.Since(start) < time.Hour {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}
