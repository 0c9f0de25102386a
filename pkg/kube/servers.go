package kube

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// connecting bounds how long one server of several is dialled: a machine that lost its power does not refuse.
const connecting = 10 * time.Second

// servers are the API servers of one cluster. All requests go to the one whose turn it is, until it fails.
type servers struct {
	addresses []string
	http      *http.Transport
	dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	turn      atomic.Uint64 // whose turn it is, counted on and on
}

// name is what stands for the servers in URLs.
func (s *servers) name(shared string) string {
	if len(s.addresses) > 1 {
		return cmp.Or(shared, s.addresses[0])
	}
	return s.addresses[0]
}

// next gives the turn to the next server, unless that has been done since turn.
func (s *servers) next(turn uint64) { s.turn.CompareAndSwap(turn, turn+1) }

func (s *servers) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if len(s.addresses) == 1 {
		return s.dial(ctx, network, addr)
	}
	ctx, cancel := context.WithTimeout(ctx, connecting)
	defer cancel()
	return s.dial(ctx, network, addr)
}

// RoundTrip sends a request to the server whose turn it is.
func (s *servers) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(s.addresses) == 1 {
		return s.http.RoundTrip(r)
	}
	at, there := *r.URL, r.WithContext(r.Context())
	at.Host = s.addresses[s.turn.Load()%uint64(len(s.addresses))]
	there.URL = &at
	answer, err := s.http.RoundTrip(there)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at.Host, err)
	}
	return answer, nil
}

// once makes a call, of one server after the other while they fail for a passing reason.
func (c *Client) once(ctx context.Context, call func(context.Context) error) (err error) {
	for range c.servers.addresses {
		turn := c.servers.turn.Load()
		attempt, cancel := context.WithTimeout(ctx, oneCall)
		err = call(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !transient(err) {
			break
		}
		c.servers.next(turn)
	}
	return err
}
