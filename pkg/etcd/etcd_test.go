package etcd_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/etcd/etcdtest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// three is a cluster of three members and a way to reach them.
type three struct {
	*etcdtest.Cluster
	members []*etcdtest.Member
	server  *tls.Config
	client  *tls.Config
	hang    string // the address that takes connections and says nothing
}

func newThree(t *testing.T) *three {
	t.Helper()
	store := &pki.Store{Dir: t.TempDir()}
	pair := func(s pki.Spec) *tls.Certificate {
		p, err := store.Leaf(s)
		if err != nil {
			t.Fatal(err)
		}
		return p.TLS()
	}
	server := pair(pki.EtcdMember("node1", []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}))
	ca, err := store.CA(pki.Etcd)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Cert)
	c := &three{Cluster: etcdtest.New()}
	c.server = &tls.Config{Certificates: []tls.Certificate{*server}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
	c.client = &tls.Config{Certificates: []tls.Certificate{*pair(pki.EtcdAdmin("kubexm"))}, RootCAs: roots, MinVersion: tls.VersionTLS12}
	for i := range 3 {
		c.members = append(c.members, c.Add(fmt.Sprintf("node%d", i+1), fmt.Sprintf("https://10.0.0.%d:2379", i+1)))
	}
	return c
}

func (c *three) access(endpoint string) etcd.Access {
	return etcd.Access{Endpoint: endpoint, TLS: func() (*tls.Config, error) { return c.client, nil }, Dial: c.dial}
}

func (c *three) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	if addr == c.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, m := range c.members {
		if m.ClientURL == "https://"+addr {
			return m.Dial(c.server)
		}
	}
	return nil, errors.New("no route to host")
}

func (c *three) endpoints(n int) (all []etcd.Access) {
	for _, m := range c.members[:n] {
		all = append(all, c.access(m.ClientURL))
	}
	return all
}

func TestClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newThree(t)
		c.Holds(func() []string { return []string{"/registry/namespaces/default", "/registry/pods/x"} })
		client, err := etcd.New(c.access("https://10.0.0.1:2379"))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		members, err := client.Members(t.Context())
		if err != nil || len(members) != 3 || members[1].Name != "node2" || members[1].ClientURLs[0] != "https://10.0.0.2:2379" || members[1].PeerURLs[0] != "https://10.0.0.2:2380" {
			t.Errorf("members: %+v, %v", members, err)
		}
		is, err := client.Status(t.Context())
		if err != nil || is.ID != members[0].ID || is.Leader != is.ID || is.Version != "3.6.4" || is.DBSize != 20<<20 {
			t.Errorf("status: %+v, %v", is, err)
		}
		if err := client.Health(t.Context()); err != nil {
			t.Errorf("health: %v", err)
		}
		if key, err := client.FirstKey(t.Context(), "/registry/"); err != nil || key != "/registry/namespaces/default" {
			t.Errorf("first key: %q, %v", key, err)
		}
		if key, err := client.FirstKey(t.Context(), "/other/"); err != nil || key != "" {
			t.Errorf("first key of nothing: %q, %v", key, err)
		}
		if err := client.MoveLeader(t.Context(), members[2].ID); err != nil || c.Leader() != "node3" {
			t.Errorf("moving the leader: %v, it is %s", err, c.Leader())
		}
		if err := client.MoveLeader(t.Context(), members[1].ID); err == nil || !strings.Contains(err.Error(), "not leader") || fault.IsTransient(err) {
			t.Errorf("moving the leader from one that is not: %v", err)
		}
		c.Hide(true)
		if err := client.Health(t.Context()); err != nil {
			t.Errorf("health with a key that is forbidden: %v", err)
		}
		c.Set(c.members[1], func(m *etcdtest.Member) { m.Alarm = "NOSPACE" })
		if alarms, err := client.Alarms(t.Context()); err != nil || len(alarms) != 1 || alarms[0] != (etcd.Alarm{Member: 2, Type: "NOSPACE"}) {
			t.Errorf("alarms: %v, %v", alarms, err)
		}
		c.Set(c.members[0], func(m *etcdtest.Member) { m.Down = true })
		if err := client.Health(t.Context()); err == nil || !fault.IsTransient(err) {
			t.Errorf("a member that is down: %v", err)
		}
	})
}

// TestSurvey has clusters in every state that matters.
func TestSurvey(t *testing.T) {
	set := func(i int, change func(*etcdtest.Member)) func(*three) {
		return func(c *three) { c.Set(c.members[i], change) }
	}
	down := func(m *etcdtest.Member) { m.Down = true }
	for name, test := range map[string]struct {
		spoil func(*three)
		asked int
	}{
		"well":                {func(*three) {}, 3},
		"one asked":           {func(*three) {}, 1},
		"one down":            {set(1, down), 3},
		"one down, not asked": {set(2, down), 2},
		"leader down":         {set(0, down), 3},
		"majority down":       {func(c *three) { c.Set(c.members[1], down); c.Set(c.members[2], down) }, 3},
		"all down":            {func(c *three) { set(0, down)(c); set(1, down)(c); set(2, down)(c) }, 3},
		"silent":              {func(c *three) { c.hang = "10.0.0.2:2379" }, 3},
		"behind":              {set(1, func(m *etcdtest.Member) { m.Behind = 900 }), 3},
		"alarm":               {set(1, func(m *etcdtest.Member) { m.Alarm = "NOSPACE" }), 3},
		"learner":             {set(2, func(m *etcdtest.Member) { m.Learner = true }), 3},
		"learner asked alone": {set(0, func(m *etcdtest.Member) { m.Learner = true }), 1},
		"learner with alarm":  {set(2, func(m *etcdtest.Member) { m.Learner, m.Alarm = true, "NOSPACE" }), 3},
		"not started":         {set(2, func(m *etcdtest.Member) { m.Name, m.Down = "", true }), 2},
		"removed":             {func(c *three) { c.Remove(c.members[1]) }, 3},
		"escapes":             {set(1, func(m *etcdtest.Member) { m.Name, m.Version = "\x1b[2Jnode2", "3.6\n" }), 3},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newThree(t)
				test.spoil(c)
				start := time.Now()
				golden.Equal(t, text(etcd.Survey(t.Context(), c.endpoints(test.asked))))
				if took := time.Since(start); took > etcd.Patience {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

func text(v etcd.View) string {
	var b strings.Builder
	healthy, total, majority := v.Quorum()
	fmt.Fprintf(&b, "%d of %d, majority %d, leader %d\n", healthy, total, majority, v.LeaderID())
	for _, m := range v.Members {
		fmt.Fprintf(&b, "%d %q %q learner=%t behind=%d sync=%t: %v\n", m.Member.ID, m.Name, m.Version, m.Member.Learner, m.Behind, m.InSync(), m.Err)
	}
	for _, n := range []int{1, 2, 3} {
		if err := v.Errs[fmt.Sprintf("https://10.0.0.%d:2379", n)]; err != nil {
			fmt.Fprintf(&b, "endpoint %d: %v\n", n, err)
		}
	}
	return b.String()
}

// TestRefused has a client whose certificate no member takes.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newThree(t)
		c.client = &tls.Config{RootCAs: c.client.RootCAs, MinVersion: tls.VersionTLS12}
		view := etcd.Survey(t.Context(), c.endpoints(1))
		if err := view.Errs["https://10.0.0.1:2379"]; err == nil || len(view.Members) > 0 {
			t.Errorf("a client without a certificate: %+v", view)
		}
	})
}

func TestFit(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*etcdtest.Member)
		want   string
	}{
		"well":    {func(*etcdtest.Member) {}, ""},
		"old":     {func(m *etcdtest.Member) { m.Version = "3.5.9" }, `version "3.5.9"`},
		"alarm":   {func(m *etcdtest.Member) { m.Alarm = "CORRUPT" }, "not healthy: alarm CORRUPT"},
		"learner": {func(m *etcdtest.Member) { m.Learner = true }, "a learner, which answers no reads"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newThree(t)
			c.Set(c.members[0], test.change)
			err := etcd.Fit(t.Context(), c.access("https://10.0.0.1:2379"), "v3.5.24")
			if got := fmt.Sprint(err); got != test.want && (err != nil || test.want != "") {
				t.Errorf("%s: %s", name, got)
			}
		})
	}
}
