//go:build e2e

package e2e

import (
	"net"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// The world outside of clusters: a zone with a name server of its own, in which
// every name has one address.
const (
	outsideZone    = "corp.test"
	outsideAddress = "192.0.2.53"
)

func outsideServer() string { return the.bed.Gateway() + ":5353" }

// serveOutside runs the zone's name server until the test ends.
func serveOutside(t *testing.T) {
	t.Helper()
	conn, err := net.ListenPacket("udp", outsideServer())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		for buf := make([]byte, 1500); ; {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Additionals = true, nil
			if q.Type == dnsmessage.TypeA {
				address := [4]byte(net.ParseIP(outsideAddress).To4())
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 5}, Body: &dnsmessage.AResource{A: address}}}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
}
