package runnertest

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Listen takes connections that programs of the host make to its loopback.
func (h *Host) Listen(ctx context.Context) (net.Listener, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if h.down.Load() {
		return nil, fault.Transient(fmt.Errorf("%s: %w", h.Name, ErrLost))
	}
	if h.NoForwarding {
		return nil, fmt.Errorf("listening on the loopback of %s: ssh: tcpip-forward request denied by peer", h.Name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &listener{host: h, conns: make(chan net.Conn), closed: make(chan struct{})}
	for port := 40000; ; port++ {
		l.addr = net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
		if h.services[l.addr.String()] == nil {
			break
		}
	}
	h.services[l.addr.String()] = l.dial
	return l, nil
}

type listener struct {
	host   *Host
	addr   net.TCPAddr
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) dial() (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.host.Serve(l.addr.String(), nil)
	})
	return nil
}

func (l *listener) Addr() net.Addr { return &l.addr }
