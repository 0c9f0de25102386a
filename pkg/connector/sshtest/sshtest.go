// Package sshtest is an SSH server for tests that runs in the test's process:
// commands go to a Go function. A server costs one goroutine and one file
// descriptor, so that a test may have a thousand.
package sshtest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/kubexm/kubexm/pkg/connector/internal/script"
)

// Handler runs one command: the line of connector.Cmd, or what another SSH client
// asks for. It returns the exit status. It may be called many times at once.
type Handler func(line string, stdin io.Reader, stdout, stderr io.Writer) int

// Config is what a Server is like.
type Config struct {
	Handler Handler                  // nil: commands are refused
	SFTP    func(io.ReadWriteCloser) // serves the subsystem sftp; nil: there is none
	// Password that opens the door for any user. Without Password and Key,
	// everybody is let in.
	Password string
	Key      ssh.PublicKey
	Latency  time.Duration                                                        // of each direction
	Sessions int                                                                  // at once on a connection, more are refused; 0: any number
	Address  string                                                               // to listen on; empty: a free port of 127.0.0.1
	Dial     func(ctx context.Context, network, address string) (net.Conn, error) // connects for clients; nil: TCP from here
}

// Server is a running server. It also dials TCP addresses for its clients.
type Server struct {
	Address string // IP address
	Port    int
	HostKey ssh.PublicKey

	cfg      Config
	ssh      *ssh.ServerConfig
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]bool
	running  map[int]ssh.Channel // by process group
	group    int
}

// Start starts a server. It ends with the test.
func Start(t testing.TB, cfg Config) *Server {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	s := &Server{cfg: cfg, HostKey: signer.PublicKey(), conns: map[net.Conn]bool{}, running: map[int]ssh.Channel{}}
	s.ssh = &ssh.ServerConfig{NoClientAuth: cfg.Password == "" && cfg.Key == nil}
	if cfg.Password != "" {
		s.ssh.PasswordCallback = func(_ ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			return nil, allow(string(password) == cfg.Password)
		}
	}
	if cfg.Key != nil {
		s.ssh.PublicKeyCallback = func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			return nil, allow(string(key.Marshal()) == string(cfg.Key.Marshal()))
		}
	}
	s.ssh.AddHostKey(signer)
	if s.listener, err = net.Listen("tcp", cmp.Or(cfg.Address, "127.0.0.1:0")); err != nil {
		t.Fatal(err)
	}
	address := s.listener.Addr().(*net.TCPAddr)
	s.Address, s.Port = address.IP.String(), address.Port
	s.wg.Go(s.accept)
	t.Cleanup(func() {
		s.listener.Close()
		s.Drop()
		s.wg.Wait()
	})
	return s
}

func allow(ok bool) error {
	if ok {
		return nil
	}
	return errors.New("refused")
}

// Drop cuts all connections; new ones are accepted.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[conn] = true
		s.mu.Unlock()
		s.wg.Go(func() {
			s.serve(conn)
			conn.Close()
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		})
	}
}

func (s *Server) serve(conn net.Conn) {
	if s.cfg.Latency > 0 {
		near, far := net.Pipe()
		outer := conn
		s.wg.Go(func() { Relay(outer, far, s.cfg.Latency) })
		conn = near
		defer near.Close()
	}
	sc, channels, requests, err := ssh.NewServerConn(conn, s.ssh)
	if err != nil {
		return
	}
	defer sc.Close()
	s.wg.Go(func() { ssh.DiscardRequests(requests) })
	sessions := make(chan struct{}, max(s.cfg.Sessions, 1))
	for c := range channels {
		switch {
		case c.ChannelType() == "direct-tcpip":
			s.wg.Go(func() { s.dial(c) })
			continue
		case c.ChannelType() != "session":
			c.Reject(ssh.UnknownChannelType, "no such channel")
			continue
		case s.cfg.Sessions > 0:
			select {
			case sessions <- struct{}{}:
			default:
				c.Reject(ssh.ConnectionFailed, "open failed")
				continue
			}
		}
		s.wg.Go(func() {
			s.session(c)
			if s.cfg.Sessions > 0 {
				<-sessions
			}
		})
	}
}

// session runs the one command, or the subsystem, of an SSH session.
func (s *Server) session(c ssh.NewChannel) {
	ch, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	for r := range requests {
		var exec struct{ Line string } // or the name of the subsystem
		command := r.Type == "exec" && s.cfg.Handler != nil
		if ssh.Unmarshal(r.Payload, &exec) != nil || !command && (r.Type != "subsystem" || exec.Line != "sftp" || s.cfg.SFTP == nil) {
			r.Reply(false, nil)
			continue
		}
		r.Reply(true, nil)
		s.wg.Go(func() { ssh.DiscardRequests(requests) })
		status := 0
		if command {
			status = s.start(exec.Line, ch)
		} else {
			s.cfg.SFTP(ch)
		}
		ch.SendRequest("exit-status", false, binary.BigEndian.AppendUint32(nil, uint32(status)))
		return
	}
}

// start does what a shell does with a line of package script.
func (s *Server) start(login string, ch ssh.Channel) int {
	nonce, line, ok := script.ParseStart(login)
	if !ok {
		return s.cfg.Handler(login, ch, ch, ch.Stderr())
	}
	s.mu.Lock()
	s.group++
	group := s.group
	s.running[group] = ch
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, group)
	}()
	mark := func(w io.Writer, letter byte, text string) {
		fmt.Fprintf(w, "%s%c%s\n", script.Mark(nonce), letter, text)
	}
	run := func(line string, stdin io.Reader) int {
		mark(ch, script.Begin, "")
		status := s.run(line, stdin, ch)
		mark(ch, script.End, fmt.Sprint(status))
		mark(ch.Stderr(), script.End, "")
		return status
	}
	mark(ch.Stderr(), script.Ready, fmt.Sprint(group, " ", group))
	if line != "" {
		return run(line, ch)
	}
	for calls := bufio.NewReader(ch); ; {
		line, stdin, err := script.ReadCall(calls)
		if err != nil {
			return 0
		}
		run(line, bytes.NewReader(stdin))
		mark(ch, script.Clean, "")
	}
}

// run calls the handler, but for the connector's command that ends another.
func (s *Server) run(line string, stdin io.Reader, ch ssh.Channel) int {
	group, ok := script.ParseKillGroup(line)
	if !ok {
		return s.cfg.Handler(line, stdin, ch, ch.Stderr())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if victim := s.running[group]; victim != nil {
		victim.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Signal     string
			CoreDumped bool
			Error      string
			Lang       string
		}{Signal: "TERM"}))
		victim.Close()
	}
	return 0
}
