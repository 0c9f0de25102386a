package app_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestCertificates lists those of a cluster that is new, and of one that nobody has looked after for most of a year, or longer.
func TestCertificates(t *testing.T) {
	for _, name := range []string{"row1", "row2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, name), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				var text strings.Builder
				for _, days := range []int{0, 3500, 120, 30} {
					time.Sleep(time.Duration(days) * 24 * time.Hour)
					a := w.attempt(t.Context())
					is, err := a.App.Certificates(a.ctx, a.Request, a.Observer)
					w.must(err)
					counts := map[string]int{}
					for _, c := range is.Certificates {
						counts[c.State]++
						if days == 0 {
							also := strings.Join(append([]string{c.Path}, c.Also...), " ")
							fmt.Fprintf(&text, "%s %s: %s, by %s, %s, authority %t, for %q, presented by %q\n", c.Host, strings.ReplaceAll(also, w.dir, "WORKDIR"), c.Subject, c.Signer, c.State, c.Authority, c.Names, c.Servers)
						}
					}
					fmt.Fprintf(&text, "after %d days more: %v, %d due, problems %q\n", days, counts, is.Due(), is.Problems)
					if n := counts[app.CertDue] + counts[app.CertExpired]; n != is.Due() {
						t.Errorf("%d due, but %d told", n, is.Due())
					}
				}
				golden.File(t, "testdata/certs/"+name+".txt", text.String())
			})
		})
	}
}
