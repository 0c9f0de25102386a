package sshtest

import (
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/ssh/agent"
)

// Agent runs an SSH agent without keys for the rest of a test, which finds it by SSH_AUTH_SOCK.
func Agent(t testing.TB) agent.Agent {
	t.Helper()
	keys, socket := agent.NewKeyring(), filepath.Join(t.TempDir(), "agent")
	Listen(t, "unix", socket, func(c net.Conn) { _ = agent.ServeAgent(keys, c) }) // ends when who asks hangs up
	t.Setenv("SSH_AUTH_SOCK", socket)
	return keys
}

// Listen serves each connection to an address for the rest of a test, and closes it when serve ends.
func Listen(t testing.TB, network, address string, serve func(net.Conn)) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l
}
