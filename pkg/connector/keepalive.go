package connector

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// liveConn counts reads: whatever comes is a sign of life.
type liveConn struct {
	net.Conn
	reads atomic.Int64
}

func (l *liveConn) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.reads.Add(1)
	return n, err
}

// watch asks a silent machine for signs of life, ends a connection that gives
// none, and keeps the cause of its end.
func (l *liveConn) watch(c *conn) {
	const misses = 4
	silent := false
	over := make(chan error, 1)
	go func() { over <- c.client.Wait() }()
	tick := time.NewTicker(c.cfg.KeepAlive)
	defer tick.Stop()
	defer close(c.lost)
	for missed, seen := 0, int64(0); ; {
		select {
		case err := <-over:
			if silent {
				err = fmt.Errorf("no sign of life for %v", misses*c.cfg.KeepAlive)
			}
			c.cause = fault.Away(fault.Advise(fmt.Errorf("connection to %s lost: %w", c.cfg, err),
				"check that the machine is up and the network to it is steady"))
			return
		case <-tick.C:
			if now := l.reads.Load(); now != seen {
				seen, missed = now, 0
				continue
			}
			if missed++; missed > misses {
				silent = true
				c.client.Close()
				continue
			}
			go func() { _, _, _ = c.client.SendRequest("keepalive@openssh.com", true, nil) }()
		}
	}
}
