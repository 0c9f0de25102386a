package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
	"github.com/kubexm/kubexm/pkg/util/racetest"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

func TestExplain(t *testing.T) {
	for _, path := range []string{"", "spec.hosts[0].taints", "kubernetes.proxymode", "spec.source.mirrors", "spec.registry.mirrors", "spec.kuberntes", "spec.nonsense"} {
		name := strings.NewReplacer(".", "-", "[0]", "").Replace(cmp.Or(path, "root"))
		t.Run(name, func(t *testing.T) {
			text, err := Explain(path)
			if err != nil {
				if fault.ExitCode(err) != fault.ExitUsage {
					t.Errorf("exit code %d, want %d", fault.ExitCode(err), fault.ExitUsage)
				}
				text = err.Error() + "\n"
			}
			golden.File(t, "testdata/"+t.Name()+".txt", text)
		})
	}
}

// TestFields checks that every field is explained, and that the table of what
// is not supported names fields that exist.
func TestFields(t *testing.T) {
	root, err := loadSchema()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	var walk func(path string, p property)
	walk = func(path string, p property) {
		for _, f := range p.fields() {
			at := join(path, f.name)
			if !strings.HasSuffix(f.Description, ".") {
				t.Errorf("%s: no description that ends in a full stop: %q", at, f.Description)
			}
			known[at] = true
			if f.Items != nil {
				at += "[]"
			}
			known[at] = true
			walk(at, f)
		}
	}
	walk("", property{schema: root})
	for _, u := range unsupported {
		if !known[u.path] {
			t.Errorf("unsupported.go: there is no %s", u.path)
		}
	}
}

func TestInit(t *testing.T) {
	key := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]InitOptions{
		"default": {},
		"kubexm":  {Type: "kubexm", Addresses: []string{"node.example.com"}, User: "ops"},
		"ha":      {Masters: 3, Workers: 2},
		"vip":     {Masters: 3, VIP: "192.0.2.100", Addresses: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}},
		"three":   {Addresses: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}, PrivateKeyPath: key},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := Init("demo", o)
			if err != nil {
				t.Fatal(err)
			}
			// A host by name also needs its address.
			full := strings.Replace(text, "internalAddress:  ", "internalAddress: 192.0.2.9 ", 1)
			if _, warnings, err := Parse("cluster.yaml", []byte(full)); err != nil || len(warnings) > 0 {
				t.Errorf("%v\n%v\n%s", err, warnings, text)
			}
			if name != "three" {
				golden.File(t, "testdata/"+t.Name()+".yaml", text)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	text, err := os.ReadFile("testdata/valid/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, _, err = Load(filepath.Join(dir, "none.yaml"))
	if !errors.Is(err, os.ErrNotExist) || fault.ExitCode(err) != fault.ExitUsage || fault.Advice(err) == "" {
		t.Errorf("missing file: %v, exit code %d, advice %q", err, fault.ExitCode(err), fault.Advice(err))
	}
	t.Chdir(dir)
	for path, want := range map[string]string{
		"conf/prod/cluster.yaml": "create one with: kubexm config init --name prod",
		"other.yaml":             "create one with: kubexm config init -f other.yaml",
		".":                      "give the file in it, like: -f cluster.yaml",
		"-":                      "write the configuration to a file, and name that: -f FILE",
		"/proc/self/mem":         "let the user who runs kubexm read it",
	} {
		_, _, err := Load(path)
		if fault.Advice(err) != want || fault.ExitCode(err) != fault.ExitUsage {
			t.Errorf("%s: %v, advice %q, want %q", path, err, fault.Advice(err), want)
		}
	}
	if _, _, err := Load("/dev/zero"); err == nil || err.Error() != "/dev/zero:1: too large: a configuration has at most 4 MiB" {
		t.Errorf("/dev/zero: %v", err)
	}
	for mode, want := range map[os.FileMode]string{
		0o600: "",
		0o640: ":8: spec.global.password: a secret in plain text in a file that others can read; chmod 600 the file, or use spec.global.passwordFrom with env, file or exec",
	} {
		path := filepath.Join(dir, "cluster.yaml")
		if err := errors.Join(os.WriteFile(path, text, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		_, warnings, err := Load(path)
		if got := strings.TrimPrefix(warnings.Error(), path); err != nil || got != want {
			t.Errorf("mode %o: %v, warnings %q, want %q", mode, err, got, want)
		}
	}
}

func TestZone(t *testing.T) {
	text, err := os.ReadFile("testdata/valid/alone.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KXZONE", "cn")
	if c, _, err := Parse("", text); err != nil || c.Spec.Source.Zone != "cn" {
		t.Errorf("KXZONE=cn: %v, zone %q", err, c.Spec.Source.Zone)
	}
	t.Setenv("KXZONE", "moon")
	if _, _, err := Parse("f", text); err == nil || !strings.Contains(err.Error(), `spec.source.zone: "moon": unknown value (of KXZONE); allowed: cn`) {
		t.Errorf("KXZONE=moon: %v", err)
	}
}

func TestVersionsFor(t *testing.T) {
	for version, want := range map[string]string{
		"v1.34.2": "v1.34.11", "1.37.9": "v1.37.1", "v1.40.0": "v1.37.1", "v1.30.1": "v1.32.13", "latest": "v1.37.1",
	} {
		if got := VersionsFor(version).Kubernetes; got != want {
			t.Errorf("VersionsFor(%q) is for %s, want %s", version, got, want)
		}
	}
}

// TestSecretHangs has a command that waits for an answer that nobody can give.
func TestSecretHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c v1alpha1.Cluster
		c.Spec.Hosts = []v1alpha1.Host{{Name: "node1"}}
		c.Spec.Hosts[0].PasswordFrom = &v1alpha1.SecretSource{Exec: "pass show node1"}
		_, err := ResolveSecrets(t.Context(), &c, func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		if err == nil || !strings.Contains(err.Error(), "it has not ended after 1m0s") || !strings.Contains(fault.Advice(err), "pass show node1") {
			t.Errorf("got %v; %s", err, fault.Advice(err))
		}
	})
}

func TestResolveSecrets(t *testing.T) {
	dir := t.TempDir()
	open, closed := filepath.Join(dir, "open"), filepath.Join(dir, "closed")
	if err := errors.Join(os.WriteFile(open, []byte("from file\n"), 0o600), os.Chmod(open, 0o644),
		os.WriteFile(closed, []byte("line\n\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KX_TEST_PASSWORD", "from env")
	t.Setenv("KX_TEST_EMPTY", "")
	runs := 0
	run := func(_ context.Context, line string) (string, error) {
		if runs++; line == "fail" {
			return "", errors.New("no such command")
		}
		return "from " + line + "\n", nil
	}
	env := func(name string) *v1alpha1.SecretSource { return &v1alpha1.SecretSource{Env: name} }
	file := func(name string) *v1alpha1.SecretSource { return &v1alpha1.SecretSource{File: name} }
	exec := func(line string) *v1alpha1.SecretSource { return &v1alpha1.SecretSource{Exec: line} }
	for _, tt := range []struct {
		name          string
		plain         string
		from          *v1alpha1.SecretSource
		want          string
		err, warnings string
	}{
		{name: "none"},
		{name: "plain", plain: "here", want: "here"},
		{name: "env", from: env("KX_TEST_PASSWORD"), want: "from env"},
		{name: "env not set", from: env("KX_TEST_NONE"), err: "spec.hosts[0].passwordFrom: the environment variable KX_TEST_NONE is not set"},
		{name: "env empty", from: env("KX_TEST_EMPTY"), err: "spec.hosts[0].passwordFrom: gives nothing"},
		{name: "file others read", from: file(open), want: "from file", warnings: "others can read this secret; chmod 600 it"},
		{name: "file", from: file(closed), want: "line\n"},
		{name: "no file", from: file(filepath.Join(dir, "none")), err: "no such file or directory"},
		{name: "exec", from: exec("pass show"), want: "from pass show"},
		{name: "exec fails", from: exec("fail"), err: "spec.hosts[0].passwordFrom: running the command that gives the secret: no such command"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runs = 0
			var c v1alpha1.Cluster
			for range 3 {
				h := v1alpha1.Host{}
				h.Password, h.PasswordFrom = secret.New(tt.plain), tt.from
				h.Bastion = &v1alpha1.Bastion{Credentials: v1alpha1.Credentials{PassphraseFrom: tt.from}}
				c.Spec.Hosts = append(c.Spec.Hosts, h)
			}
			warnings, err := ResolveSecrets(t.Context(), &c, run)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Count(err.Error(), "\n") > 0 {
					t.Errorf("error %v, want one line with %q", err, tt.err)
				}
				return
			}
			if err != nil || len(warnings) > 1 || !strings.Contains(warnings.Error(), tt.warnings) {
				t.Errorf("error %v, warnings %v", err, warnings)
			}
			for _, h := range c.Spec.Hosts {
				if h.Password.Reveal() != tt.want || h.SudoPassword.Reveal() != tt.want {
					t.Errorf("password %q, sudo password %q, want %q", h.Password.Reveal(), h.SudoPassword.Reveal(), tt.want)
				}
				if got := h.Bastion.Passphrase.Reveal(); tt.from != nil && got != tt.want {
					t.Errorf("passphrase of the bastion %q, want %q", got, tt.want)
				}
			}
			if tt.from != nil && tt.from.Exec != "" && runs != 1 {
				t.Errorf("the command ran %d times", runs)
			}
		})
	}
}

// TestBastion shows that no password reaches a machine it was not given for.
func TestBastion(t *testing.T) {
	var c v1alpha1.Cluster
	c.Spec.Global.PrivateKeyPath, c.Spec.Global.Password = "/key", secret.New("global")
	c.Spec.Global.Bastion = &v1alpha1.Bastion{Address: "jump"}
	own := v1alpha1.Host{Name: "own"}
	own.User, own.Bastion = "ops", &v1alpha1.Bastion{Address: "other"}
	other := v1alpha1.Host{Name: "other"}
	other.User, other.PrivateKeyPath, other.Password = "root", "/other", secret.New("host")
	c.Spec.Hosts = []v1alpha1.Host{own, other}
	Default(&c)
	shared := c.Spec.Global.Bastion
	if shared.PrivateKeyPath != "/key" || shared.User != "root" || shared.Port != 22 || !shared.Password.IsZero() {
		t.Errorf("global bastion %+v", *shared)
	}
	if b := c.Spec.Hosts[0].Bastion; b.User != "ops" || b.PrivateKeyPath != "/key" || !b.Password.IsZero() {
		t.Errorf("own bastion %+v", *b)
	}
	if c.Spec.Hosts[1].Bastion != shared {
		t.Error("a host without a bastion of its own does not share the global one")
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*valid/*.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, warnings, err := Parse("cluster.yaml", data)
		if err != nil {
			_ = err.Error()
		}
		if c == nil {
			if err == nil {
				t.Error("neither a cluster nor an error")
			}
			return
		}
		_ = warnings.Error()
		shown, showErr := Show(c)
		if showErr != nil {
			t.Fatal(showErr)
		}
		if _, _, again := Parse("shown.yaml", shown); err == nil && again != nil {
			t.Errorf("what Show writes does not load: %v\n%s", again, shown)
		}
	})
}

// TestData shows which directories etcd may have for itself.
func TestData(t *testing.T) {
	for dir, want := range map[string]bool{
		"/var/lib/etcd": true, "/data": true, "/home/etcd": true, "/srv/a_b@c+d-1.2": true, "/usrdata": true, "/var/lib/etcd/data": true,
		"/": false, "/home": false, "/opt": false, "/var": false, "/var/lib": false, "/usr/local": false, "/usr/local/etcd": false, "/var/run": false,
		"/proc/1": false, "/etc/etcd": false, "/dev/shm": false, "/lib64/x": false, "/var/lib/kubelet": false, "/var/lib/kubelet/x": false,
		"/var/lib/containerd/x": false, "/var/lib/etcd/": false, "/data/../etc": false, "data": false, "/srv/a b": false,
	} {
		var c v1alpha1.Cluster
		c.Spec.Etcd.DataDir, c.Spec.Runtime.DataRoot = dir, "/var/lib/containerd"
		k := &checker{Spec: &c.Spec}
		if k.checkData(); (len(k.errs) == 0) != want || len(k.errs) > 1 {
			t.Errorf("%s: %v", dir, k.errs)
		}
	}
}

// TestWrittenSecrets shows where secrets that cannot be read are written: each
// once, with what to do.
func TestWrittenSecrets(t *testing.T) {
	text, err := os.ReadFile("testdata/valid/alone.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := Parse("cluster.yaml", []byte(string(text)+`  global:
    sudoPasswordFrom: {env: KX_TEST_NONE}
    passphraseFrom: {exec: pass key}
    bastion: {address: jump.example.com, passwordFrom: {env: KX_TEST_JUMP}}
`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = ResolveSecrets(t.Context(), c, func(context.Context, string) (string, error) { return "", errors.New("no such command") })
	golden.File(t, "testdata/TestWrittenSecrets.txt", err.Error()+"\nnext:\n"+fault.Advice(err)+"\n")
}

// TestRegistryPassword has a password by passwordFrom: only bcrypt, in the private registry, and Harbor's installer have limits.
func TestRegistryPassword(t *testing.T) {
	for name, tt := range map[string]struct {
		kind, registry, password, want string
	}{
		"longest":    {"registry", "registry.example.com", strings.Repeat("$", 72), ""},
		"too long":   {"registry", "registry.example.com", strings.Repeat("x", 73), "spec.registry.auth[registry.example.com].passwordFrom: gives more than the 72 bytes that a password may have"},
		"of another": {"harbor", "other.example.com", strings.Repeat("$", 73), ""},
		"of Harbor":  {"harbor", "registry.example.com", "aZ0._~@%+=:,/-", ""},
		"not for it": {"harbor", "registry.example.com", "a b", "spec.registry.auth[registry.example.com].passwordFrom: " +
			"gives characters other than letters, digits and ._~@%+=:,/-, which Harbor's installer cannot write"},
	} {
		t.Run(name, func(t *testing.T) {
			var c v1alpha1.Cluster
			c.Spec.Registry = &v1alpha1.Registry{Type: tt.kind, PrivateRegistry: "registry.example.com", Auth: map[string]v1alpha1.RegistryAuth{
				tt.registry: {Username: "nodes", PasswordFrom: &v1alpha1.SecretSource{Exec: "pass show"}},
			}}
			_, err := ResolveSecrets(t.Context(), &c, func(context.Context, string) (string, error) { return tt.password + "\n", nil })
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || err.Error() != tt.want || fault.Advice(err) == "") {
				t.Errorf("error %v, advice %q, want %q", err, fault.Advice(err), tt.want)
			}
		})
	}
}

// TestText has texts that are none, or more than one can read.
func TestText(t *testing.T) {
	valid, err := os.ReadFile("testdata/valid/alone.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"end of document":  {string(valid) + "---\n", ""},
		"many ends":        {string(valid) + "---\n# nothing\n---\n...\n", ""},
		"byte order mark":  {"\ufeff" + string(valid), ""},
		"second document":  {string(valid) + "---\na: b\n", "a second document; only one cluster fits in a file"},
		"UTF-16":           {"\xff\xfea\x00", "f:1: the text is encoded as UTF-16; save it as UTF-8"},
		"UTF-16, unmarked": {"a\x00\n\x00", "f:1: a zero byte: not UTF-8 text, perhaps UTF-16; save it as UTF-8"},
		"Latin-1":          {"a: b\nc: \xfc\n", "f:2: not UTF-8 text; save it as UTF-8"},
		"control":          {"a: b\n\nc: \x1b[0m\n", "f:3: an invisible control character (U+001B); remove it"},
		"tab":              {"a:\n\tb: c\n", "f:2: a tab; YAML indents with spaces"},
		"tab below":        {"a:\n  b:\n  \tc: d\n   e: f\n", "f:3: a tab; YAML indents with spaces"},
		"too large":        {strings.Repeat("# \n", maxSize/3+1), "f:1: too large: a configuration has at most 4 MiB"},
		"too many values":  {"spec: {network: {calico: {felix: {a: [" + strings.Repeat("1,", maxNodes) + "]}}}}", "too large: a configuration has at most 200000 values"},
		"too many aliases": {"spec: {network: {calico: {felix: {b: &b 1, a: [" + strings.Repeat("*b,", maxNodes) + "]}}}}", "aliases make the document too large or endless"},
	} {
		if racetest.Enabled && len(tt.text) > maxNodes {
			continue // slow there, and nothing runs at the same time
		}
		_, _, err := Parse("f", []byte(tt.text))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	var faulty strings.Builder
	for i := range 100 {
		fmt.Fprintf(&faulty, "field%d: 1\n", i)
	}
	_, _, err = Parse("f", []byte(faulty.String()))
	if lines := strings.Split(err.Error(), "\n"); len(lines) != Most+1 || !strings.HasSuffix(err.Error(), "\nand 54 more") {
		t.Errorf("%d lines, the last of them %q", len(lines), lines[len(lines)-1])
	}
}
