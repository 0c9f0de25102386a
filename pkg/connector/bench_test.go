package connector

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/util/secret"
)

// BenchmarkCommand is what a small command costs: in a session of its own and in a
// long-lived shell; without sudo, by sudo without and with a password; without and
// with a round trip time. cpu-us/op is the processor time of sshd, its children and this process.
func BenchmarkCommand(b *testing.B) {
	users := []struct {
		name string
		sudo bool
		account
	}{
		{"user", false, newAccount(b)},
		{"nopasswd", true, newAccount(b, "USER ALL=(ALL) NOPASSWD: ALL")},
		{"password", true, newAccount(b, "USER ALL=(ALL) ALL", "Defaults:USER timestamp_timeout=0")},
	}
	ways := []struct {
		name string
		exec func(*conn, context.Context, Cmd) error
	}{
		{"session", func(c *conn, ctx context.Context, cmd Cmd) error {
			if _, err := c.pool.take(ctx, never); err != nil {
				return err
			}
			return c.once(ctx, cmd)
		}},
		{"shell", (*conn).exec},
	}
	for _, user := range users {
		for _, rtt := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
			for _, way := range ways {
				b.Run(fmt.Sprintf("%s/rtt=%v/%s", user.name, rtt, way.name), func(b *testing.B) {
					s := startSSHD(b)
					s.latency = rtt / 2
					cfg := s.config()
					cfg.User, cfg.Password = user.account.name, secret.New(user.password)
					c := s.connect(b, cfg)
					conn := c.(*sshConnector).last.conn
					ctx := context.Background()
					var out bytes.Buffer
					before := cpu()
					b.ResetTimer()
					for range b.N {
						out.Reset()
						if err := way.exec(conn, ctx, Cmd{Line: "uname -r; echo $?", Sudo: user.sudo, Stdout: &out}); err != nil || out.Len() == 0 {
							b.Fatal(err, out.String())
						}
					}
					b.StopTimer()
					c.Close()
					s.stop()
					b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-us/op")
				})
			}
		}
	}
}

// BenchmarkUpload is what a file costs on its way to the machine.
func BenchmarkUpload(b *testing.B) {
	const size = 64 << 20
	s := startSSHD(b)
	c := s.connect(b, s.config())
	b.SetBytes(size)
	for b.Loop() {
		if err := c.Exec(context.Background(), Cmd{Line: "cat >/dev/null", Stdin: io.LimitReader(endless{}, size)}); err != nil {
			b.Fatal(err)
		}
	}
}

// cpu returns the processor time of this process and its children that ended.
func cpu() (d time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err == nil {
			d += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return d
}
