package sshtest

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Relay copies between two connections, each way later by latency, until one ends;
// then it closes both. It does not limit the rate.
func Relay(a, b net.Conn, latency time.Duration) {
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			delay(way[1], way[0], latency)
			a.Close()
			b.Close()
		})
	}
	wg.Wait()
}

func delay(to io.Writer, from io.Reader, latency time.Duration) {
	if latency == 0 {
		io.Copy(to, from)
		return
	}
	type packet struct {
		due  time.Time
		data []byte
	}
	packets := make(chan packet, 1024)
	go func() {
		defer close(packets)
		for {
			data := make([]byte, 32<<10)
			n, err := from.Read(data)
			packets <- packet{time.Now().Add(latency), data[:n]}
			if err != nil {
				return
			}
		}
	}()
	for p := range packets {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			go func() { // the reader must not wait for ever
				for range packets {
				}
			}()
			return
		}
	}
}

// dial does what sshd does for ssh -W.
func (s *Server) dial(c ssh.NewChannel) {
	var to struct {
		Host       string
		Port       uint32
		OriginHost string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(c.ExtraData(), &to); err != nil {
		c.Reject(ssh.Prohibited, err.Error())
		return
	}
	conn, err := s.cfg.Dial(context.Background(), "tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	ch, requests, err := c.Accept()
	if err != nil {
		conn.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	var wg sync.WaitGroup
	wg.Go(func() {
		io.Copy(conn, ch)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		} else {
			conn.Close()
		}
	})
	io.Copy(ch, conn)
	ch.Close()
	conn.Close()
	wg.Wait()
}
