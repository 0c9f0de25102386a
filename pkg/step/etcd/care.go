package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Defragmented is a member of etcd whose database has little freed space.
type Defragmented struct {
	Host   string
	Member etcd.Access `json:"-"`
}

// Defragment gives freed space of the member on a host back to the disk. It answers nobody meanwhile.
func Defragment(c *cluster.Cluster, host string) step.Step {
	return step.With(Defragmented{host, c.EtcdAccess(host)}, step.Options{Timeout: 10 * time.Minute})
}

func (Defragmented) String() string { return "etcd defragmented" }

// wasted reports whether it is worth the pause: a fifth is free, and a megabyte.
func wasted(size, inUse int64) bool { return size-inUse >= max(size/5, 1<<20) }

// Precheck asks the member.
func (d Defragmented) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	var was etcd.Status
	err := through(d.Member, r, func(c *etcd.Client) (err error) { was, err = c.Status(ctx); return err })
	if err != nil || !wasted(was.DBSize, was.InUse) {
		return nil, err
	}
	return &step.Change{
		Diff: fmt.Sprintf("~ %s of etcd on %s, of which %s are used", human.Bytes(was.DBSize), d.Host, human.Bytes(was.InUse)), Restarts: []string{"etcd"}, Verify: step.Verified,
		Run: func(ctx context.Context) error {
			return through(d.Member, r, func(c *etcd.Client) error {
				if err := c.Defragment(ctx); err != nil {
					return err
				}
				is, err := c.Status(ctx)
				if err == nil {
					step.Tell(ctx, fmt.Sprintf("%s -> %s", human.Bytes(was.DBSize), human.Bytes(is.DBSize)))
				}
				return err
			})
		},
	}, nil
}

// Compacted is an etcd without history, if it is full of that.
type Compacted struct {
	Members []etcd.Access `json:"-"`
}

// Compact has an etcd that has no space drop the history of its keys. API servers do so every five minutes, but not then: they write a key first
// (https://github.com/etcd-io/etcd/issues/14595).
func Compact(c *cluster.Cluster) step.Step {
	return step.With(Compacted{voters(c)}, step.Options{Timeout: 10 * time.Minute})
}

func voters(c *cluster.Cluster) (all []etcd.Access) {
	for _, h := range c.VotingEtcd() {
		all = append(all, c.EtcdAccess(h))
	}
	return all
}

func (Compacted) String() string { return "etcd compacted" }

// Precheck asks the member for alarms.
func (o Compacted) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	full, err := outOfSpace(ctx, o.Members[0], r)
	if err != nil || len(full) == 0 {
		return nil, err
	}
	return &step.Change{Diff: "- history of etcd up to now\n", Verify: step.Verified, Run: func(ctx context.Context) error {
		var revision int64
		for _, m := range o.Members { // each compacts by itself, and answers when it has
			err := through(m, r, func(c *etcd.Client) error {
				if revision == 0 {
					is, err := c.Status(ctx)
					if err != nil {
						return err
					}
					revision = is.Revision
				}
				return c.Compact(ctx, revision)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

// outOfSpace lists the alarms of members whose data is as large as it may be.
func outOfSpace(ctx context.Context, a etcd.Access, r *runner.Runner) (alarms []etcd.Alarm, err error) {
	err = through(a, r, func(c *etcd.Client) (err error) { alarms, err = c.Alarms(ctx); return err })
	return slices.DeleteFunc(alarms, func(a etcd.Alarm) bool { return a.Type != noSpace }), err
}

// Disarmed is an etcd that has space again, and takes writes.
type Disarmed struct {
	Members []etcd.Access `json:"-"`
}

// Disarm takes back the alarms of members that had no space, once they have.
func Disarm(c *cluster.Cluster) step.Step {
	return Disarmed{voters(c)}
}

func (Disarmed) String() string { return "alarm NOSPACE of etcd cleared" }

// Precheck lists the alarms.
func (d Disarmed) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	alarms, err := outOfSpace(ctx, d.Members[0], r)
	if err != nil || len(alarms) == 0 {
		return nil, err
	}
	text := ""
	for _, a := range alarms {
		text += fmt.Sprintf("- alarm %s of member %x\n", a.Type, a.Member)
	}
	return &step.Change{Diff: text, Run: func(ctx context.Context) error {
		for _, m := range d.Members {
			err := through(m, r, func(c *etcd.Client) error {
				is, err := c.Status(ctx)
				quota := cmp.Or(is.Quota, defaultQuota)
				if err == nil && is.DBSize > quota/10*9 {
					err = fmt.Errorf("the data of etcd at %s takes %s of the %s that it may take", m.Endpoint, human.Bytes(is.DBSize), human.Bytes(quota))
					err = fault.Advise(err, "delete objects that are not needed, and run it again")
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return through(d.Members[0], r, func(c *etcd.Client) (err error) {
			for _, a := range alarms {
				err = errors.Join(err, c.Disarm(ctx, a))
			}
			return err
		})
	}}, nil
}

// defaultQuota is that of etcd, in bytes; before 3.6 it does not say which one it has (server/storage/quota.go).
const defaultQuota = 2 << 30

// noSpace is the alarm of a member whose data is as large as it may be: etcd takes no writes until it is cleared.
const noSpace = "NOSPACE"

// through calls use with a client of a member, from where the host is.
func through(a etcd.Access, r *runner.Runner, use func(*etcd.Client) error) error {
	a.Dial = r.Dial
	client, err := etcd.New(a)
	if err != nil {
		return err
	}
	defer client.Close()
	return use(client)
}
