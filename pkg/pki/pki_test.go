package pki

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

var services = []netip.Prefix{netip.MustParsePrefix("10.233.0.0/18"), netip.MustParsePrefix("fd00:1::/108")}

// every is one of each certificate that a cluster has.
func every() []Spec {
	return []Spec{
		APIServer("node1", []string{"10.0.0.11", "192.0.2.11"}, "cluster.local", services, "lb.kubexm.local", "10.0.0.100"),
		APIServerKubeletClient(), FrontProxyClient(), Admin(), ControllerManager(), Scheduler(), KubeProxy(),
		Kubelet("node1"), KubeletServer("node1", []string{"10.0.0.11"}),
		EtcdMember("node1", []string{"10.0.0.11"}), EtcdAdmin("node1"), EtcdClient("node1"),
	}
}

func leaf(t *testing.T, s *Store, spec Spec) *Pair {
	t.Helper()
	p, err := s.Leaf(spec)
	if err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	return p
}

func authority(t *testing.T, s *Store, ca CA) *Pair {
	t.Helper()
	p, err := s.CA(ca)
	if err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	return p
}

func flush(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestIdentities(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	var got strings.Builder
	for _, spec := range every() {
		c := leaf(t, s, spec).X509
		fmt.Fprintf(&got, "%s\n  issuer  %s\n  subject %s\n  names   %s\n  usages  %v\n", spec, c.Issuer, c.Subject, names(c), c.ExtKeyUsage)
		roots := x509.NewCertPool()
		roots.AddCert(authority(t, s, spec.CA).X509)
		for _, usage := range spec.Usages {
			if _, err := c.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
				t.Errorf("%s: %v", spec, err)
			}
		}
	}
	golden.Equal(t, got.String())
}

func TestSecondRunFindsTheSame(t *testing.T) {
	dir := t.TempDir()
	snapshot := func() map[string]string {
		s := &Store{Dir: dir, Validity: 3650 * 24 * time.Hour}
		for _, spec := range every() {
			leaf(t, s, spec)
		}
		if _, _, err := s.ServiceAccountKey(); err != nil {
			t.Fatal(err)
		}
		flush(t, s)
		files := map[string]string{}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == dir {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if want := map[bool]fs.FileMode{false: 0o600, true: 0o700}[d.IsDir()]; info.Mode().Perm() != want {
				t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
			}
			if d.IsDir() {
				return nil
			}
			data, err := os.ReadFile(path)
			files[path] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	first := snapshot()
	if len(first) != 2*(len(every())+3)+1 { // pairs of files for leaves and authorities, and sa.key
		t.Errorf("%d files", len(first))
	}
	if d := cmp.Diff(first, snapshot()); d != "" {
		t.Error(d)
	}
}

func TestLeafIsMadeAgain(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	spec := APIServer("node1", []string{"10.0.0.11"}, "cluster.local", services[:1])
	tests := map[string]struct {
		validity time.Duration
		after    time.Duration
		change   func(*Spec)
		damage   func(t *testing.T, s *Store)
		anew     bool
	}{
		"unchanged":            {},
		"names in other order": {change: func(s *Spec) { s.SANs = append([]string{"10.0.0.11"}, s.SANs...) }},
		"name added":           {change: func(s *Spec) { s.SANs = append(s.SANs, "api.example.org") }, anew: true},
		"name removed":         {change: func(s *Spec) { s.SANs = s.SANs[1:] }, anew: true},
		"other user":           {change: func(s *Spec) { s.CN = "else" }, anew: true},
		"other group":          {change: func(s *Spec) { s.Org = []string{"else"} }, anew: true},
		"other usages":         {change: func(s *Spec) { s.Usages = both }, anew: true},
		"31 days left":         {after: 334 * day},
		"29 days left":         {after: 336 * day, anew: true},
		"short, half left":     {validity: 10 * day, after: 5 * day},
		"short, little left":   {validity: 10 * day, after: 7 * day, anew: true},
		"as long as authority": {validity: 11 * 365 * day, after: 3640 * day},
		"key of another": {anew: true, damage: func(t *testing.T, s *Store) {
			overwrite(t, s, "apiserver-node1.key", leaf(t, s, Scheduler()).Key.Reveal())
		}},
		"certificate lost":             {anew: true, damage: func(t *testing.T, s *Store) { remove(t, s, "apiserver-node1.crt") }},
		"authority's certificate lost": {damage: func(t *testing.T, s *Store) { remove(t, s, "ca.crt") }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			now, spec := start, spec
			s := &Store{Dir: t.TempDir(), Validity: tt.validity, Now: func() time.Time { return now }}
			first := leaf(t, s, spec)
			if tt.damage != nil {
				tt.damage(t, s)
			}
			if tt.change != nil {
				tt.change(&spec)
			}
			now = now.Add(tt.after)
			second := leaf(t, s, spec)
			if anew := !bytes.Equal(first.Cert, second.Cert); anew != tt.anew {
				t.Errorf("recreated: %v, want %v", anew, tt.anew)
			}
			if !second.owns() {
				t.Error("key does not belong to certificate")
			}
			if third := leaf(t, s, spec); !bytes.Equal(second.Cert, third.Cert) {
				t.Error("made again without need")
			}
		})
	}
}

func TestDamageIsReported(t *testing.T) {
	tests := map[string]struct {
		damage func(t *testing.T, s *Store)
		want   string
		advice string
	}{
		"authority is no PEM":    {func(t *testing.T, s *Store) { overwrite(t, s, "ca.crt", "rubbish") }, "ca.crt: ", "backup"},
		"authority's key lost":   {func(t *testing.T, s *Store) { remove(t, s, "ca.key") }, "ca.key: ", "backup"},
		"authority's key broken": {func(t *testing.T, s *Store) { overwrite(t, s, "ca.key", "rubbish") }, "ca.key: ", "backup"},
		"authority's other key": {func(t *testing.T, s *Store) {
			overwrite(t, s, "ca.key", leaf(t, s, Scheduler()).Key.Reveal())
		}, "not the key of", "backup"},
		"a leaf as authority": {func(t *testing.T, s *Store) {
			p := leaf(t, s, Scheduler())
			overwrite(t, s, "ca.crt", string(p.Cert))
			overwrite(t, s, "ca.key", p.Key.Reveal())
		}, "not a CA certificate", "backup"},
		"authority lost": {func(t *testing.T, s *Store) {
			leaf(t, s, Scheduler())
			remove(t, s, "ca.crt")
			remove(t, s, "ca.key")
		}, "ca.crt: no such file", "backup"},
		"leaf is no PEM": {func(t *testing.T, s *Store) {
			leaf(t, s, Scheduler())
			overwrite(t, s, "scheduler.crt", "rubbish")
		}, "scheduler.crt: ", "remove the file"},
		"authority expired": {func(t *testing.T, s *Store) {
			authority(t, s, Kubernetes)
			s.Now = func() time.Time { return time.Now().Add(caValidity + time.Hour) }
		}, "it expired on", "backup"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &Store{Dir: filepath.Join(t.TempDir(), "a[1]")} // which is no pattern
			authority(t, s, Kubernetes)
			tt.damage(t, s)
			_, err := s.Leaf(Scheduler())
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(fault.Advice(err), tt.advice) {
				t.Errorf("error %v, advice %q; want %q, %q", err, fault.Advice(err), tt.want, tt.advice)
			}
		})
	}
}

func TestBadName(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	for _, name := range []string{"", "a b", "10.0.0.0/24", "https://x"} {
		if _, err := s.Leaf(Spec{CA: Etcd, Name: "x", CN: "x", SANs: []string{name}, Usages: server}); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
}

func TestOperator(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	if p, err := s.Operator(); err == nil {
		t.Errorf("made for no cluster: %v", p)
	}
	authority(t, s, Kubernetes)
	p, err := s.Operator()
	if err != nil {
		t.Fatal(err)
	}
	if got := p.X509.Subject.String(); got != "CN=kubexm,O=system:masters" {
		t.Error(got)
	}
	if left := time.Until(p.X509.NotAfter); left > operatorValidity {
		t.Errorf("valid for %v", left)
	}
	if p, err := s.EtcdOperator(); err == nil {
		t.Errorf("made for no etcd: %v", p)
	}
	ca := authority(t, s, Etcd)
	if p, err := s.EtcdOperator(); err != nil || p.X509.CheckSignatureFrom(ca.X509) != nil {
		t.Errorf("of etcd: %v, %v", p, err)
	}
	if files, _ := filepath.Glob(filepath.Join(s.Dir, "*", "*")); len(files) != 4 {
		t.Errorf("stored beside the authorities: %v", files)
	}
	if text := fmt.Sprintf("%v %+v %#v", p, p, p.Key); strings.Contains(text, "PRIVATE") {
		t.Error("prints its key")
	}
}

func TestServiceAccountKey(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	private, public, err := s.ServiceAccountKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := keyutil.ParsePrivateKeyPEM([]byte(private.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	if k, ok := key.(*rsa.PrivateKey); !ok || k.N.BitLen() != 2048 {
		t.Errorf("key is %T", key)
	}
	keys, err := keyutil.ParsePublicKeysPEM(public)
	if err != nil || len(keys) != 1 || !key.(*rsa.PrivateKey).PublicKey.Equal(keys[0]) {
		t.Errorf("public half: %v, %v", keys, err)
	}
	flush(t, s)
	overwrite(t, s, "sa.key", "rubbish")
	if _, _, err := s.ServiceAccountKey(); err == nil || fault.Advice(err) == "" {
		t.Errorf("broken key: %v", err)
	}
}

// TestHash compares with what `openssl x509 -pubkey | openssl pkey -pubin -outform der | sha256sum` prints.
func TestHash(t *testing.T) {
	data, err := os.ReadFile("testdata/TestHash.crt")
	if err != nil {
		t.Fatal(err)
	}
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, (&Pair{X509: certs[0]}).Hash()+"\n")
}

func TestExpires(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	ca, node := authority(t, s, Etcd), leaf(t, s, EtcdClient("node1"))
	if on, err := Expires(slices.Concat(node.Cert, ca.Cert)); err != nil || !on.Equal(ca.X509.NotAfter) {
		t.Errorf("%s, %v", on, err)
	}
	if _, err := Expires([]byte("no")); err == nil {
		t.Error("what is no certificate expires")
	}
}

func TestKubeconfig(t *testing.T) {
	pair := &Pair{Cert: []byte("certificate\n"), Key: secret.New("key\n")}
	got, err := Kubeconfig("kubernetes", "https://lb.kubexm.local:6443", []byte("authority\n"), "kubernetes-admin", pair)
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, got.Reveal())
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(got.Reveal()))
	if err != nil || config.Host != "https://lb.kubexm.local:6443" || string(config.KeyData) != "key\n" {
		t.Errorf("read back: %v, %v", config, err)
	}
}

func TestOpenSSLAgrees(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed: no second opinion on the chains")
	}
	s := &Store{Dir: t.TempDir()}
	for _, spec := range every() {
		leaf(t, s, spec)
		purpose := "sslclient"
		if spec.Usages[0] == x509.ExtKeyUsageServerAuth {
			purpose = "sslserver"
		}
		out, err := exec.Command(openssl, "verify", "-x509_strict", "-purpose", purpose,
			"-CAfile", s.path(spec.CA, "ca.crt"), s.path(spec.CA, spec.Name+".crt")).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %s", spec, out)
		}
		if out, err := exec.Command(openssl, "pkey", "-check", "-noout", "-in", s.path(spec.CA, spec.Name+".key")).CombinedOutput(); err != nil {
			t.Errorf("%s: %s", spec, out)
		}
	}
}

func overwrite(t *testing.T, s *Store, file, text string) {
	t.Helper()
	if err := os.WriteFile(s.path(Kubernetes, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, s *Store, file string) {
	t.Helper()
	if err := os.Remove(s.path(Kubernetes, file)); err != nil {
		t.Fatal(err)
	}
}
