package testbed

import (
	"context"
	"fmt"
	"net"
	"time"
)

// serveNames passes questions for names on to this machine's first name server until ctx ends.
func (t *Testbed) serveNames(ctx context.Context) error {
	servers, err := resolvers()
	if err != nil {
		return err
	}
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", net.JoinHostPort(t.Gateway(), "53"))
	if err != nil {
		return fmt.Errorf("serving names: %w", err)
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	for question := make([]byte, 4096); ; {
		n, from, err := conn.ReadFrom(question)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serving names: %w", err)
		}
		asked := append([]byte(nil), question[:n]...)
		go func() {
			if answer, err := askName(servers[0], asked); err == nil {
				_, _ = conn.WriteTo(answer, from) // who gets no answer asks again
			}
		}()
	}
}

// askName has one question answered by a name server.
func askName(server string, question []byte) ([]byte, error) {
	conn, err := net.Dial("udp", net.JoinHostPort(server, "53"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write(question); err != nil {
		return nil, err
	}
	answer := make([]byte, 1<<16)
	n, err := conn.Read(answer)
	return answer[:n], err
}
