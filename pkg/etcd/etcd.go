// Package etcd speaks to members of an etcd cluster: it lists them, asks how each is, moves
// leadership between them, and changes who they are. It reaches a member through a dial function,
// normally that of the SSH connection to a host, so that the control machine needs no route to etcd.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Access says how to reach one member.
type Access struct {
	Endpoint string                      // "https://10.0.0.11:2379", as seen from where Dial comes out
	TLS      func() (*tls.Config, error) // asked for by New
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client is a connection to one member. It is safe for concurrent use. Close it: it keeps
// goroutines until then.
type Client struct {
	endpoint string
	client   *clientv3.Client
}

// Member is an entry of the list of members, which all of them share.
type Member struct {
	ID         uint64
	Name       string // empty: it was added, and has not started yet
	PeerURLs   []string
	ClientURLs []string // empty: it has not started yet
	Learner    bool     // it follows, and does not vote
}

// Started reports whether the member ever told the others its name, as the first thing that it does once it follows.
func (m Member) Started() bool { return m.Name != "" }

// Status is what a member says of itself.
type Status struct {
	ID        uint64
	Version   string // of etcd: "3.6.4"
	DBSize    int64  // bytes that the data takes on disk
	InUse     int64  // bytes of it that are used; the rest was freed, and defragmenting gives it back
	Quota     int64  // bytes that it may take; 0: unknown, before 3.6
	Revision  int64  // of the last change
	Leader    uint64 // the ID of the member that leads; 0: it knows none
	RaftIndex uint64 // the last entry of the log that it has
	RaftTerm  uint64
	Learner   bool
	Errors    []string // alarms of any member, and that there is no leader
}

// Alarm is what a member raised and nobody disarmed yet.
type Alarm struct {
	Member uint64
	Type   string // NOSPACE, CORRUPT
}

// New makes a client. It does not connect yet.
func New(a Access) (*Client, error) {
	conf, err := a.TLS()
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{a.Endpoint}, TLS: conf, Logger: zap.NewNop(),
		MaxUnaryRetries: 1, // callers know better whether to ask again
		DialOptions: []grpc.DialOption{
			grpc.WithNoProxy(), grpc.WithChainUnaryInterceptor(failFast),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return a.Dial(ctx, "tcp", addr) }),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making a client of etcd at %s: %w", a.Endpoint, err)
	}
	return &Client{a.Endpoint, client}, nil
}

// failFast lets a call fail when the member refuses the connection, where clientv3 waits until it does not
// (its defaultWaitForReady): a member that is down is an answer.
func failFast(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return call(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

// Close ends the connection and all that goes on over it.
func (c *Client) Close() { _ = c.client.Close() } // says that it was closed

// Members returns the list of members as this one has it. That needs no majority.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	resp, err := c.client.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		return nil, c.explain("listing the members of etcd", err)
	}
	return entries(resp.Members), nil
}

// Status asks the member how it is. That needs no majority.
func (c *Client) Status(ctx context.Context) (Status, error) {
	// clientv3's own Status makes a connection of its own.
	is, err := clientv3.RetryMaintenanceClient(c.client, c.client.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return Status{}, c.explain("asking etcd for its status", err)
	}
	s := Status{
		ID: is.Header.GetMemberId(), Version: human.Line(is.Version), DBSize: is.DbSize, InUse: is.DbSizeInUse, Quota: is.DbSizeQuota, Revision: is.Header.GetRevision(), Leader: is.Leader,
		RaftIndex: is.RaftIndex, RaftTerm: is.RaftTerm, Learner: is.IsLearner,
	}
	for _, e := range is.Errors {
		s.Errors = append(s.Errors, human.Line(e))
	}
	return s, nil
}

// Health reads a key through the majority, which a member can do only while it is part of one.
// The key need not exist (etcdctl endpoint health asks for the same).
func (c *Client) Health(ctx context.Context) error {
	_, err := c.client.Get(ctx, "health")
	if errors.Is(err, rpctypes.ErrPermissionDenied) { // decided by the majority, too
		return nil
	}
	return c.explain("reading from etcd", err)
}

// FirstKey returns the first key under a prefix that ends with a slash; empty: there is none.
func (c *Client) FirstKey(ctx context.Context, prefix string) (string, error) {
	resp, err := c.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err != nil || len(resp.Kvs) == 0 {
		return "", c.explain("reading from etcd", err)
	}
	return human.Line(string(resp.Kvs[0].Key)), nil
}

// Alarms lists the alarms of all members. That needs a majority.
func (c *Client) Alarms(ctx context.Context) ([]Alarm, error) {
	resp, err := c.client.AlarmList(ctx)
	if err != nil {
		return nil, c.explain("listing the alarms of etcd", err)
	}
	var all []Alarm
	for _, a := range resp.Alarms {
		all = append(all, Alarm{a.MemberID, a.Alarm.String()})
	}
	return all, nil
}

// Defragment gives freed space back to the disk. The member answers nobody meanwhile: about a second for 500 MB.
func (c *Client) Defragment(ctx context.Context) error {
	_, err := clientv3.RetryMaintenanceClient(c.client, c.client.ActiveConnection()).Defragment(ctx, &pb.DefragmentRequest{})
	return c.explain("defragmenting etcd", err)
}

// Compact drops the history of keys up to a revision, and returns when that space is free on the member that is asked. The others follow in their own time. It needs a
// majority, and is done without space, too.
func (c *Client) Compact(ctx context.Context, revision int64) error {
	_, err := c.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if errors.Is(err, rpctypes.ErrCompacted) { // it has waited for that all the same
		return nil
	}
	return c.explain("compacting etcd", err)
}

// Disarm takes an alarm back that a member has raised.
func (c *Client) Disarm(ctx context.Context, a Alarm) error {
	_, err := c.client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: a.Member, Alarm: pb.AlarmType(pb.AlarmType_value[a.Type])})
	return c.explain("taking back the alarm "+a.Type+" of etcd", err)
}

// MoveLeader hands leadership to another member. It must be asked of the one that leads, and
// returns when the other has it.
func (c *Client) MoveLeader(ctx context.Context, to uint64) error {
	_, err := c.client.MoveLeader(ctx, to)
	return c.explain("handing over the leadership of etcd", err)
}

// explain says where etcd was asked, marks what may pass, gives the next move, and leaves out what gRPC says around the cause.
func (c *Client) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	msg, passing, advice := err.Error(), false, ""
	var known rpctypes.EtcdError
	switch s, _ := status.FromError(err); {
	case errors.As(err, &known):
		passing = known.Code() == codes.Unavailable
		if why, ok := refusals[known]; ok {
			msg, advice, passing = why.text, why.advice, why.passing
		}
	case errors.Is(err, context.DeadlineExceeded), s.Code() == codes.DeadlineExceeded:
		msg, passing, err = "no answer in time", true, context.DeadlineExceeded
	default:
		msg, passing = s.Message(), s.Code() == codes.Unavailable
	}
	if _, cause, ok := strings.Cut(msg, `desc = "`); ok {
		msg = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(cause, `"`), "transport: "), "Error while dialing: ")
	}
	err = fmt.Errorf("%s at %s: %w", doing, c.endpoint, said{human.Line(msg), err})
	if advice != "" {
		err = fault.Advise(err, advice)
	}
	if passing {
		err = fault.Transient(err)
	}
	return err
}

// said is an error with a better text.
type said struct {
	text string
	error
}

func (e said) Error() string { return e.text }
func (e said) Unwrap() error { return e.error }
