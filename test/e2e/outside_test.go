//go:build e2e

package e2e

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// The world outside of clusters: a zone with a name server of its own, in which
// every name has one address.
const outsideZone = "corp.test"

func outsideAddress() string { return byFamily("192.0.2.53", "2001:db8::53") }

func outsideServer() string { return net.JoinHostPort(the.bed.Gateway(), "5353") }

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
			header, address := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 5}, netip.MustParseAddr(outsideAddress())
			switch {
			case q.Type == dnsmessage.TypeA && address.Is4():
				m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: address.As4()}}}
			case q.Type == dnsmessage.TypeAAAA && address.Is6():
				m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AAAAResource{AAAA: address.As16()}}}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
}
