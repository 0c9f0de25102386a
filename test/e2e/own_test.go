//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubexm/kubexm/test/smoke"
	"github.com/kubexm/kubexm/test/testbed"
)

// given is an authority of the user's, which another one has signed.
type given struct{ name, cert, key string }

// authority makes one; short: it may sign no other authority.
func authority(t *testing.T, name string, short bool) given {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		return k
	}
	rootKey, ownKey := key(), key()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root of " + name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(5, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	own := *root
	own.SerialNumber, own.Subject.CommonName, own.MaxPathLenZero = big.NewInt(2), name, short
	cert, err := x509.CreateCertificate(rand.Reader, &own, root, &ownKey.PublicKey, rootKey)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(ownKey)
	must(t, err)
	dir := t.TempDir()
	g := given{name, filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem")}
	must(t, os.WriteFile(g.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o644))
	must(t, os.WriteFile(g.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return g
}

// signs wants an authority to have signed what the API server presents.
func (g given) signs(t *testing.T, c *cluster) {
	t.Helper()
	if out := the.on(t, c.masters()[0], "openssl s_client -connect 127.0.0.1:6443 </dev/null 2>/dev/null | openssl x509 -noout -issuer"); !strings.Contains(out, g.name) {
		t.Errorf("the API server's certificate is not by %q: %s", g.name, out)
	}
}

// TestAuthorities makes a cluster whose authority is the user's own, one that may sign no other authority, and exchanges that for another one of the user's. A webhook that only
// knows the former one keeps it from being dropped. Then the former one is destroyed, and certificates that end soon are renewed.
func TestAuthorities(t *testing.T) {
	defer timed(t)()
	defer the.shrink(t)
	restoreMachines(t)
	the.resize(t, testbed.Rows[1].Nodes())
	before := the.snapshots(t)
	c := newCluster(t, 2, where{}, impatient, set("kubernetes.certificateValidityDays", 60))
	first, second := authority(t, "kubexm e2e first", true), authority(t, "kubexm e2e second", false)
	c.run(t, "certs", "use-ca", "kubernetes", "--cert", first.cert, "--key", first.key).ok(t)
	c.create(t).ok(t)
	defer func() {
		c.remove(t)
		asBefore(t, before)
	}()
	first.signs(t, c)
	for _, n := range c.kubelets() {
		must(t, the.bed.Load(t.Context(), n, smoke.Image))
	}
	c.serve(t)
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "e2e"}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "e2e.kubexm.test", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionv1.SideEffectClassNone), ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
	}}}
	trust := func(g given) {
		text, err := os.ReadFile(g.cert)
		must(t, err)
		hook.Webhooks[0].ClientConfig.CABundle = text
		hooks := c.client(t).AdmissionregistrationV1().ValidatingWebhookConfigurations()
		if hook.ResourceVersion == "" {
			hook, err = hooks.Create(t.Context(), hook, metav1.CreateOptions{})
		} else {
			hook, err = hooks.Update(t.Context(), hook, metav1.UpdateOptions{})
		}
		must(t, err)
	}
	trust(first)
	args := []string{"certs", "rotate-ca", "kubernetes", "--cert", second.cert, "--key", second.key, "--restart-workloads", "--yes", "-o", "json"}
	c.run(t, args...).fails(t, 1, "ValidatingWebhookConfiguration e2e")
	trust(second)
	c.run(t, args...).ok(t)
	second.signs(t, c)
	c.unchanged(t)

	gone := c.run(t, "certs", "destroy-old", "--yes").ok(t).text()
	if left, _ := filepath.Glob(c.dir("certs", "*", "*-old-*")); !strings.Contains(gone, "ca-old-") || len(left) > 0 {
		t.Errorf("destroyed are %s, and left %q", gone, left)
	}
	c.change(t, set("kubernetes.certificateValidityDays", 400))
	c.run(t, "apply", "--yes", "-o", "json").ok(t)
	if o := c.run(t, "certs", "renew", "--within", "90", "--yes", "-o", "json").ok(t); o.result.Summary.Changed == 0 {
		t.Errorf("certificates that end in 60 days were not renewed: %s", o.text())
	}
	if out := c.run(t, "certs", "renew", "--within", "30", "--yes").ok(t).text(); strings.Contains(out, "changed") {
		t.Errorf("nothing ends within 30 days: %s", out)
	}
	second.signs(t, c)
	c.whole(t)
	c.unchanged(t)
}

// onWorker keeps backups on the last host, which only has to speak SFTP for that.
func onWorker(spec map[string]any) {
	hosts := spec["hosts"].([]any)
	server := map[string]any{"address": hosts[len(hosts)-1].(map[string]any)["address"], "path": "/srv/backups/kubexm"}
	for _, field := range []string{"user", "privateKeyPath"} {
		server[field] = spec["global"].(map[string]any)[field]
	}
	set("backup.targets", []any{map[string]any{"sftp": server}})(spec)
}

// TestFullEtcd fills etcd until it takes no writes any more, first by changes of one object, then by many objects, and has kubexm make space. Then the cluster is brought back to
// a backup from before, which a real sshd has kept.
func TestFullEtcd(t *testing.T) {
	defer timed(t)()
	defer the.shrink(t)
	restoreMachines(t)
	the.resize(t, testbed.Rows[1].Nodes())
	key := filepath.Join(t.TempDir(), "recovery.key")
	public, err := exec.Command(the.program, "backup", "key", "--out", key).Output()
	must(t, err)
	c := newCluster(t, 2, where{}, impatient, set("etcd.extraArgs", map[string]any{"quota-backend-bytes": "50331648"}), set("backup.recipients", []any{strings.TrimSpace(string(public))}), onWorker)
	c.create(t).ok(t)
	defer func() { c.remove(t) }()
	t.Log(c.run(t, "backup", "create").ok(t).text())
	maps := c.client(t).CoreV1().ConfigMaps("default")
	// fill writes until etcd takes nothing.
	fill := func(write func(i int, o *corev1.ConfigMap) error) {
		t.Helper()
		data := make([]byte, 700<<10)
		for n := range 200 {
			_, _ = rand.Read(data)
			err := write(n, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large-", n)}, BinaryData: map[string][]byte{"data": data}})
			switch {
			case err == nil:
			case strings.Contains(err.Error(), "database space exceeded"):
				t.Logf("full after %d writes: %v", n, err)
				c.run(t, "etcd", "status").fails(t, 1, "NOSPACE", "kubexm etcd defrag")
				return
			default:
				t.Fatal(err)
			}
		}
		t.Fatal("etcd takes all that is written")
	}
	create := func(_ int, o *corev1.ConfigMap) error {
		_, err := maps.Create(t.Context(), o, metav1.CreateOptions{})
		return err
	}
	fill(func(i int, o *corev1.ConfigMap) error {
		if o.Name = "one"; i == 0 {
			return create(i, o)
		}
		_, err := maps.Update(t.Context(), o, metav1.UpdateOptions{})
		return err
	})
	t.Log(c.run(t, "etcd", "defrag").ok(t).text())
	t.Log(c.run(t, "etcd", "status").ok(t).text())

	full := false
	for round := range 5 { // what pages have between objects is a little space at first
		fill(func(i int, o *corev1.ConfigMap) error {
			o.Name = fmt.Sprint("large-", round, "-", i)
			return create(i, o)
		})
		if o := c.run(t, "etcd", "defrag"); o.code != 0 {
			o.fails(t, 1, "that it may take", "delete objects that are not needed")
			full = true
			break
		}
	}
	if !full {
		t.Fatal("there is always space")
	}
	all, err := maps.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, o := range all.Items {
		if strings.HasPrefix(o.Name, "large-") {
			must(t, maps.Delete(t.Context(), o.Name, metav1.DeleteOptions{}))
		}
	}
	t.Log(c.run(t, "etcd", "defrag").ok(t).text())
	must(t, create(0, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "small"}}))
	t.Log(c.run(t, "etcd", "status").ok(t).text())

	t.Log(c.run(t, "backup", "list").ok(t).text())
	t.Log(c.run(t, "backup", "verify", "latest", "-i", key).ok(t).text())
	c.run(t, "restore", "latest", "-i", key, "--yes", "-o", "json").ok(t)
	if _, err := maps.Get(t.Context(), "small", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what is younger than the backup is still there: %v", err)
	}
	c.whole(t)
	c.unchanged(t)
}
