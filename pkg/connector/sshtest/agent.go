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
	l, err := net.Listen("unix", socket)
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
				_ = agent.ServeAgent(keys, c) // ends when who asks hangs up
				c.Close()
			}()
		}
	}()
	t.Setenv("SSH_AUTH_SOCK", socket)
	return keys
}
