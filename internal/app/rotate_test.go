package app_test

import (
	"crypto/x509"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// told lists the services that were restarted.
func (c *chronicle) told() string {
	var text strings.Builder
	all := c.restarts()
	for _, service := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s on %s\n", service, strings.Join(all[service], ", "))
	}
	return text.String()
}

// TestRenew makes certificates anew, and restarts only what does not read them again.
func TestRenew(t *testing.T) {
	for _, name := range []string{"row1", "row2", "row7", "row9", "registry"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, edited(t, row(t, name), "kubernetes: {certificateValidityDays: 365}"), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				time.Sleep(200 * 24 * time.Hour)
				seen := w.watched()
				renew := func(what app.Renewed) {
					a := w.attempt(t.Context())
					_, err := a.App.Renew(a.ctx, a.Request, a.Observer, what)
					w.must(err)
				}
				old := func() (names []string) {
					a := w.attempt(t.Context())
					is, err := a.App.Certificates(a.ctx, a.Request, a.Observer)
					w.must(err)
					for _, c := range is.Certificates {
						if c.Days < 200 && c.Path != "" && !c.Authority && !strings.HasPrefix(c.Path, "/var/lib/kubelet/pki/kubelet-client-") {
							names = append(names, c.Host+" "+c.Path)
						}
					}
					return names
				}
				all := len(old())
				renew(app.Renewed{Authorities: []pki.CA{pki.FrontProxy}})
				some := len(old())
				renew(app.Renewed{})
				if left := old(); left != nil || some == 0 || some >= all {
					t.Errorf("of %d certificates %d are old after some, and of all\n%s", all, some, strings.Join(left, "\n"))
				}
				w.unwatched()
				w.settled()
				golden.File(t, "testdata/renew/"+name+".txt", seen.told())
			})
		})
	}
}

// TestRotate exchanges all authorities at once, phase by phase.
func TestRotate(t *testing.T) {
	for _, name := range []string{"row1", "row2", "row7", "row9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, name), "")
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				was := w.signers(name)
				var text strings.Builder
				for _, phase := range []string{"add", "swap", "drop"} {
					seen := w.watched()
					w.must(w.rotate(app.Rotation{Authorities: pki.Rotated(), Phase: phase}))
					w.unwatched()
					w.settled()
					fmt.Fprintf(&text, "%s restarts\n%s\n", phase, seen.told())
				}
				golden.File(t, "testdata/rotate/"+name+".txt", text.String())
				w.verified()
				a := w.attempt(t.Context())
				is, err := a.App.Certificates(a.ctx, a.Request, a.Observer)
				w.must(err)
				for _, c := range is.Certificates {
					if w.hosts[c.Host] == nil {
						continue
					}
					text, _ := w.hosts[c.Host].Get(c.Path)
					certs, err := certutil.ParseCertsPEM([]byte(text))
					if err == nil && slices.ContainsFunc(was, func(s *x509.Certificate) bool { return certs[0].CheckSignatureFrom(s) == nil }) {
						t.Errorf("%s on %s is of a former authority", c.Path, c.Host)
					}
				}
			})
		})
	}
}

func (w *world) rotate(rot app.Rotation) error {
	a := w.attempt(w.Context())
	_, err := a.App.Rotate(a.ctx, a.Request, a.Observer, rot)
	return err
}

// signers are the authorities of the cluster.
func (w *world) signers(name string) (all []*x509.Certificate) {
	s := &pki.Store{Dir: filepath.Join(w.dir, name, "certs")}
	for _, ca := range []pki.CA{pki.Kubernetes, pki.Etcd, pki.FrontProxy} {
		p, err := s.CA(ca)
		w.must(err)
		all = append(all, p.X509)
	}
	return all
}
