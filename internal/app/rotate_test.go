package app_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/kube/kubetest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// told lists the services that were restarted.
func (c *chronicle) told() string {
	var text strings.Builder
	all := c.restarts()
	for _, service := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s on %s\n", service, strings.Join(slices.Sorted(slices.Values(all[service])), ", ")) // who leads comes last, and anybody may
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
	for _, name := range []string{"row1", "row2", "row7", "row9", "registry"} {
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

// TestKilledRotation is killed again and again at nodes far into its phases, and carries on until all is exchanged.
func TestKilledRotation(t *testing.T) { killedRotation(t, 1) }

// TestFaultsKilledRotation does so at many nodes.
func TestFaultsKilledRotation(t *testing.T) { killedRotation(t, 12) }

func killedRotation(t *testing.T, often int) {
	for _, name := range []string{"row7", "row9"} {
		for n := range often {
			t.Run(fmt.Sprint(name, "/", n), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T) {
					w := newWorld(t, row(t, name), "")
					_, err := w.attempt(t.Context()).create()
					w.must(err)
					was := w.signers(name)
					killed := 0
					for at := 3 + 11*n; ; at += 40 {
						ctx, cancel := context.WithCancel(t.Context())
						a := w.attempt(ctx)
						a.killAt(at)
						_, err := a.App.Rotate(a.ctx, a.Request, a.Observer, app.Rotation{Authorities: pki.Rotated()})
						cancel()
						if err == nil {
							break
						}
						if killed++; killed > 40 {
							t.Fatalf("not done after %d runs: %v", killed, err)
						}
						w.answers()
					}
					if slices.ContainsFunc(w.signers(name), func(c *x509.Certificate) bool { return slices.ContainsFunc(was, c.Equal) }) || killed == 0 {
						t.Errorf("not all authorities are new, after %d kills", killed)
					}
					if former, _ := filepath.Glob(filepath.Join(w.dir, name, "certs", "*", "*-old-*.key")); len(former) != len(pki.Rotated())-1 { // there is no private registry
						t.Errorf("rotated more than once: %q", former)
					}
					w.settled()
					w.verified()
				})
			})
		}
	}
}

// answers wants the API to answer one who knows what the control machine does.
func (w *world) answers() {
	w.Helper()
	a := w.attempt(w.Context())
	if _, err := a.App.Status(a.ctx, a.Request, a.Observer); err != nil {
		w.Errorf("the API does not answer: %v", err)
	}
}

// TestDropRefused keeps former authorities as long as pods may know only these, and restarts what can be.
func TestDropRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row2"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		w.callers()
		rot := app.Rotation{Authorities: []pki.CA{pki.Kubernetes}}
		err = w.rotate(rot)
		if err == nil || !strings.Contains(err.Error(), "Deployment default/caller") || !strings.Contains(err.Error(), "Pod default/lone") {
			t.Fatalf("pods from before: %v", err)
		}
		w.settled()
		rot.Restart = true
		if err = w.rotate(rot); err == nil || strings.Contains(err.Error(), "Deployment") || !strings.Contains(err.Error(), "Pod default/lone") {
			t.Fatalf("a pod that nothing starts again: %v", err)
		}
		w.deleteObject("Pod", "lone")
		w.must(w.rotate(rot))
		w.settled()
		if err := w.rotate(app.Rotation{Authorities: rot.Authorities, Phase: "drop"}); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "kubernetes: add is next") {
			t.Errorf("drop before add: %v", err)
		}
	})
}

// TestDropRefusedByBundles keeps a former authority as long as API servers believe webhooks and others by it alone.
func TestDropRefusedByBundles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, row(t, "row1"), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		authority := filepath.Join(w.dir, "row1", "certs", "kubernetes", "ca.crt")
		bundle := func() string {
			text, err := os.ReadFile(authority)
			w.must(err)
			return base64.StdEncoding.EncodeToString(text)
		}
		put := func(apiVersion, kind, name string, more map[string]any) {
			o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
			maps.Copy(o, more)
			w.api.Put(&unstructured.Unstructured{Object: o})
		}
		hook := func(bundle string) map[string]any {
			return map[string]any{"webhooks": []any{map[string]any{"name": "a.example.com", "failurePolicy": "Ignore", "clientConfig": map[string]any{"url": "https://192.0.2.9", "caBundle": bundle}}}}
		}
		was := bundle()
		put("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "ours", hook(was))
		put("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "rubbish", hook("cnViYmlzaA=="))
		put("apiregistration.k8s.io/v1", "APIService", "v1.example.com", map[string]any{"spec": map[string]any{"group": "example.com", "version": "v1", "caBundle": was}})
		rot := app.Rotation{Authorities: []pki.CA{pki.Kubernetes}}
		err = w.rotate(rot)
		if err == nil || !strings.Contains(err.Error(), "ValidatingWebhookConfiguration ours\n") || !strings.Contains(err.Error(), "APIService v1.example.com") || strings.Contains(err.Error(), "rubbish") {
			t.Fatalf("bundles from before: %v", err)
		}
		w.settled()
		put("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "ours", hook(bundle()))
		put("apiregistration.k8s.io/v1", "APIService", "v1.example.com", map[string]any{"spec": map[string]any{"group": "example.com", "version": "v1", "insecureSkipTLSVerify": true}})
		w.must(w.rotate(rot))

		named := filepath.Join(w.dir, "row1", "certs", "kubernetes", "kubelet-server-web-old-1.key") // of a host
		w.must(os.WriteFile(named, nil, 0o600))
		a := w.attempt(t.Context())
		gone, err := a.App.DestroyFormerKeys(a.ctx, a.Request, a.Observer)
		w.must(err)
		if len(gone) != 2 || !strings.Contains(gone[0], "/kubernetes/ca-old-") || !strings.HasSuffix(gone[1], ".key") {
			t.Errorf("destroyed: %q", gone)
		}
		w.must(os.Remove(named))
		if left, err := a.App.FormerKeys(a.ctx, a.Request, a.Observer); err != nil || left != nil {
			t.Errorf("left: %q, %v", left, err)
		}
		w.settled()
	})
}

// TestGivenAuthority makes a cluster whose authority of Kubernetes is the user's, and exchanges that for another one of theirs.
func TestGivenAuthority(t *testing.T) {
	for _, name := range []string{"row1", "row2"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, row(t, name), "")
				theirs := func(name string) *pki.Pair { // it may sign no other authority
					key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
					w.must(err)
					template := &x509.Certificate{
						SerialNumber: big.NewInt(77), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(9000 * time.Hour),
						BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
					}
					der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
					w.must(err)
					private, err := x509.MarshalPKCS8PrivateKey(key)
					w.must(err)
					is, err := pki.GivenAuthority(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), time.Now())
					w.must(err)
					return is
				}
				use := func(given *pki.Pair) error {
					a := w.attempt(t.Context())
					return a.App.UseAuthority(a.ctx, a.Request, a.Observer, pki.Kubernetes, given)
				}
				first, second := theirs("first"), theirs("second")
				w.must(use(first))
				_, err := w.attempt(t.Context()).create()
				w.must(err)
				w.settled()
				signed := func(by *pki.Pair) {
					t.Helper()
					text, _ := w.hosts["node1"].Get("/etc/kubernetes/pki/apiserver.crt")
					certs, err := certutil.ParseCertsPEM([]byte(text))
					w.must(err)
					if err := certs[0].CheckSignatureFrom(by.X509); err != nil {
						t.Error(err)
					}
				}
				signed(first)
				if err := use(second); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(fault.Advice(err), "kubexm certs rotate-ca kubernetes --cert") {
					t.Errorf("another one for a cluster that is there: %v", err)
				}
				w.callers()
				rot := app.Rotation{Authorities: []pki.CA{pki.Kubernetes}, Given: second}
				if err := w.rotate(rot); err == nil || !strings.Contains(err.Error(), "before the successors were trusted") || !strings.Contains(err.Error(), "Pod default/lone") {
					t.Errorf("nothing vouches for the successor, and pods do not know it: %v", err)
				}
				signed(first)
				w.settled()
				w.deleteObject("Pod", "lone")
				rot.Restart = true
				third := rot
				third.Given = theirs("third")
				if err := w.rotate(third); fault.ExitCode(err) != fault.ExitUsage || !strings.Contains(err.Error(), "on its way to another successor, CN=second") {
					t.Errorf("another successor than the one that is trusted: %v", err)
				}
				w.must(w.rotate(rot))
				signed(second)
				w.settled()
				w.must(w.rotate(rot)) // which it is already
				signed(second)
				w.settled()
				w.verified()
			})
		})
	}
}

// callers are a Deployment with a pod, which is replaced when that is restarted, and a pod that nothing replaces. Both have an account.
func (w *world) callers() {
	started := time.Now().UTC().Format(time.RFC3339)
	put := func(apiVersion, kind, name, ownerKind, owner string, more map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"namespace": "default", "name": name, "uid": name}}}
		if owner != "" {
			controls := true
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: ownerKind, Name: owner, UID: types.UID(owner), Controller: &controls}})
		}
		maps.Copy(o.Object, more)
		w.api.Put(o)
		return o
	}
	pod := map[string]any{"status": map[string]any{"phase": "Running", "startTime": started}, "spec": map[string]any{"volumes": []any{map[string]any{
		"name": "token", "projected": map[string]any{"sources": []any{map[string]any{"serviceAccountToken": map[string]any{"path": "token"}}}},
	}}}}
	put("apps/v1", "Deployment", "caller", "", "", map[string]any{"spec": map[string]any{"template": map[string]any{}}})
	put("apps/v1", "ReplicaSet", "caller-1", "Deployment", "caller", nil)
	called := put("v1", "Pod", "caller-1-a", "ReplicaSet", "caller-1", pod)
	put("v1", "Pod", "lone", "", "", pod)
	w.api.OnWrite = func(o *unstructured.Unstructured) {
		if text, _ := o.MarshalJSON(); o.GetName() == "caller" && bytes.Contains(text, []byte("restartedAt")) {
			go w.api.Delete(called)
		}
		kubetest.Settle(o)
	}
}
