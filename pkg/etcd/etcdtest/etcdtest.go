// Package etcdtest is an etcd cluster in memory, for tests: it answers what kubexm asks members, over
// real gRPC and TLS. Members can be down, lag behind, raise alarms; the one that leads is chosen as
// the real ones do, by a majority. Members come and go as etcd 3.6 allows it, by default (--strict-reconfig-check).
package etcdtest

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Cluster is the cluster. Its methods may be called at any time.
type Cluster struct {
	mu      sync.Mutex
	id      uint64
	next    uint64 // ID of the next member
	index   uint64
	term    uint64
	leader  *Member
	members []*Member
	removed map[uint64]bool
	keys    func() []string
	data    func() []byte
	hidden  bool
	before  func(change string) error
	history []done
}

// Member is a member. Its fields change with time and may be set, or read, by Cluster.Set alone.
type Member struct {
	Name      string // empty: it has not started
	ClientURL string
	PeerURL   string // the client URL with port 2380, where nothing else was said
	Down      bool
	Behind    uint64 // entries of the log that it lacks
	Alarm     string // NOSPACE, CORRUPT; empty: none
	Learner   bool
	Version   string
	Size      int64
	Free      int64 // of Size
	History   int64 // of Size: free once it is compacted

	id      uint64
	cluster *Cluster
	since   time.Time // when its process came up; the zero time: long ago
	conns   map[net.Conn]bool
}

// New returns a cluster without members.
func New() *Cluster { return &Cluster{id: 7, next: 1, index: 100000, removed: map[uint64]bool{}} }

// Add adds a member that votes and serves clients at a URL, as if the cluster had begun with it.
func (c *Cluster) Add(name, clientURL string) *Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.member()
	m.Name, m.ClientURL, m.PeerURL = name, clientURL, strings.Replace(clientURL, ":2379", ":2380", 1)
	c.members = append(c.members, m)
	c.elect()
	return m
}

// member makes one with an ID of its own.
func (c *Cluster) member() *Member {
	m := &Member{Version: "3.6.4", Size: 20 << 20, id: c.next, cluster: c, conns: map[net.Conn]bool{}}
	c.next++
	return m
}

// Remove takes a member out of the list, and lets its process run.
func (c *Cluster) Remove(m *Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(m)
	m.hangUp()
	c.elect()
}

// Set changes a member. One that goes down ends its connections; one that is down and was removed stays down.
func (c *Cluster) Set(m *Member, change func(*Member)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	down := m.Down
	change(m)
	if down && c.removed[m.id] {
		m.Down = true
	}
	if m.Down {
		m.hangUp()
	} else if down {
		m.since = time.Now()
	}
	c.elect()
}

// Lead makes a member the leader.
func (c *Cluster) Lead(m *Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = m
	c.term++
}

// Leader is the name of the leader; empty: there is none.
func (c *Cluster) Leader() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader == nil {
		return ""
	}
	return c.leader.Name
}

// Holds sets what says which keys there are.
func (c *Cluster) Holds(keys func() []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys = keys
}

// Saves sets what says what snapshots have, before zeros that fill their last page.
func (c *Cluster) Saves(data func() []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = data
}

// Hide forbids clients to read, or allows it.
func (c *Cluster) Hide(hidden bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hidden = hidden
}

// ID is the member's.
func (m *Member) ID() uint64 { return m.id }

func (m *Member) hangUp() {
	for conn := range m.conns {
		conn.Close()
	}
	clear(m.conns)
}

// elect finds a leader where a majority can.
func (c *Cluster) elect() {
	up, voters := 0, 0
	var first *Member
	for _, m := range c.members {
		if m.Learner {
			continue
		}
		voters++
		if !m.Down {
			up++
			if first == nil {
				first = m
			}
		}
	}
	switch {
	case up <= voters/2:
		c.leader = nil
	case c.leader == nil || c.leader.Down || c.leader.Learner || !slices.Contains(c.members, c.leader):
		c.leader = first
		c.term++
	}
}

// Dial connects to the member; conf holds its certificate and whom it trusts.
func (m *Member) Dial(conf *tls.Config) (net.Conn, error) {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	if m.Down {
		return nil, fault.Transient(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})
	}
	near, far := net.Pipe()
	m.conns[far] = true
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(conf)), grpc.UnaryInterceptor(m.answers))
	pb.RegisterClusterServer(server, clusterService{m: m})
	pb.RegisterMaintenanceServer(server, maintenanceService{m: m})
	pb.RegisterKVServer(server, kvService{m: m})
	l := &listener{conn: make(chan net.Conn, 1), addr: far.LocalAddr()}
	l.conn <- far
	close(l.conn)
	go func() { _ = server.Serve(l) }() // ends at once; the connection lives on
	return near, nil
}

// answers refuses what a learner does not answer (etcdserver/api/v3rpc/util.go, isRPCSupportedForLearner).
func (m *Member) answers(ctx context.Context, req any, _ *grpc.UnaryServerInfo, answer grpc.UnaryHandler) (any, error) {
	m.cluster.mu.Lock()
	learner := m.Learner
	m.cluster.mu.Unlock()
	_, answered := req.(*pb.StatusRequest)
	if read, ok := req.(*pb.RangeRequest); ok {
		answered = read.Serializable
	}
	if learner && !answered {
		return nil, rpctypes.ErrGRPCNotSupportedForLearner
	}
	return answer(ctx, req)
}

// listener has one connection.
type listener struct {
	conn chan net.Conn
	addr net.Addr
}

func (l *listener) Accept() (net.Conn, error) {
	if c, ok := <-l.conn; ok {
		return c, nil
	}
	return nil, io.EOF
}
func (l *listener) Close() error   { return nil }
func (l *listener) Addr() net.Addr { return l.addr }

type clusterService struct {
	pb.UnimplementedClusterServer
	m *Member
}

func (s clusterService) MemberList(_ context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	c := s.m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Linearizable && c.leader == nil {
		return nil, rpctypes.ErrGRPCTimeout
	}
	return &pb.MemberListResponse{Header: s.m.header(), Members: c.list()}, nil
}

func (c *Cluster) list() (all []*pb.Member) {
	for _, m := range c.members {
		all = append(all, m.entry())
	}
	return all
}

func (m *Member) entry() *pb.Member {
	e := &pb.Member{ID: m.id, Name: m.Name, PeerURLs: []string{m.PeerURL}, IsLearner: m.Learner}
	if m.Name != "" {
		e.ClientURLs = []string{m.ClientURL}
	}
	return e
}

type maintenanceService struct {
	pb.UnimplementedMaintenanceServer
	m *Member
}

func (s maintenanceService) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	c := s.m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	resp := &pb.StatusResponse{
		Header: s.m.header(), Version: s.m.Version, DbSize: s.m.Size, DbSizeInUse: s.m.Size - s.m.Free, DbSizeQuota: 8 << 30, RaftIndex: c.index - s.m.Behind, RaftTerm: c.term, IsLearner: s.m.Learner,
	}
	if c.leader == nil {
		resp.Errors = append(resp.Errors, "etcdserver: no leader")
	} else {
		resp.Leader = c.leader.id
	}
	for _, a := range c.alarms() {
		resp.Errors = append(resp.Errors, a.String())
	}
	return resp, nil
}

func (s maintenanceService) Defragment(context.Context, *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	c := s.m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	s.m.Size, s.m.Free = s.m.Size-s.m.Free, 0
	c.history = append(c.history, done{"defragment", s.m})
	return &pb.DefragmentResponse{Header: s.m.header()}, nil
}

func (s maintenanceService) Alarm(_ context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	c := s.m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if r.Action == pb.AlarmRequest_DEACTIVATE && m.id == r.MemberID && m.Alarm == r.Alarm.String() {
			m.Alarm = ""
		}
	}
	return &pb.AlarmResponse{Header: s.m.header(), Alarms: c.alarms()}, nil
}

// Snapshot sends pages of data, one at a time as a member does, and their checksum.
func (s maintenanceService) Snapshot(_ *pb.SnapshotRequest, stream grpc.ServerStreamingServer[pb.SnapshotResponse]) error {
	s.m.cluster.mu.Lock()
	saves := s.m.cluster.data
	s.m.cluster.mu.Unlock()
	data := []byte{0}
	if saves != nil {
		data = saves()
	}
	const page = 512
	data = append(data, make([]byte, (page-len(data)%page)%page)...)
	for at := 0; at < len(data); at += page {
		if err := stream.Send(&pb.SnapshotResponse{Blob: data[at : at+page], RemainingBytes: uint64(len(data) - at - page)}); err != nil {
			return err
		}
	}
	sum := sha256.Sum256(data)
	return stream.Send(&pb.SnapshotResponse{Blob: sum[:]})
}

func (s maintenanceService) MoveLeader(_ context.Context, r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	c := s.m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.members, func(m *Member) bool { return m.id == r.TargetID && !m.Learner })
	switch {
	case c.leader != s.m:
		return nil, rpctypes.ErrGRPCNotLeader
	case i < 0:
		return nil, rpctypes.ErrGRPCBadLeaderTransferee
	case c.members[i].Down:
		return nil, rpctypes.ErrGRPCTimeout
	}
	c.leader = c.members[i]
	c.term++
	return &pb.MoveLeaderResponse{Header: s.m.header()}, nil
}

type kvService struct {
	pb.UnimplementedKVServer
	m *Member
}

func (s kvService) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	c := s.m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !r.Serializable && c.leader == nil:
		return nil, rpctypes.ErrGRPCTimeout
	case c.hidden:
		return nil, rpctypes.ErrGRPCPermissionDenied
	}
	resp := &pb.RangeResponse{Header: s.m.header()}
	if c.keys == nil {
		return resp, nil
	}
	for _, k := range c.keys() {
		if k == string(r.Key) || k > string(r.Key) && k < string(r.RangeEnd) {
			resp.Kvs = append(resp.Kvs, &mvccpb.KeyValue{Key: []byte(k)})
		}
	}
	return resp, nil
}

func (s kvService) Compact(context.Context, *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	c := s.m.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	s.m.Free, s.m.History = s.m.Free+s.m.History, 0 // the others take their time
	c.history = append(c.history, done{"compact", s.m})
	return &pb.CompactionResponse{Header: s.m.header()}, nil
}

func (m *Member) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: m.cluster.id, MemberId: m.id, RaftTerm: m.cluster.term}
}

func (c *Cluster) alarms() (all []*pb.AlarmMember) {
	for _, m := range c.members {
		if m.Alarm != "" {
			all = append(all, &pb.AlarmMember{MemberID: m.id, Alarm: pb.AlarmType(pb.AlarmType_value[m.Alarm])})
		}
	}
	return all
}
