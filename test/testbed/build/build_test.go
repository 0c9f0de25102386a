package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/test/testbed/host"
)

func TestFind(t *testing.T) {
	table, err := Table("../components")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ want, name, version string }{
		{"kubernetes", "kubernetes", "v1.37."},
		{"kubernetes@", "kubernetes", "v1.37."},
		{"kubernetes@1.35", "kubernetes", "v1.35."},
		{"kubernetes@v1.34", "kubernetes", "v1.34."},
		{"etcd@3.6", "etcd", "v3.6."},
		{"containerd@1.7", "containerd", "v1.7."},
		{"pause", "pause", "v1"},
		{"kubernetes@1.3", "", ""},
		{"kube", "", ""},
	} {
		got, err := Find(table, c.want)
		if (err != nil) != (c.name == "") || got.Name != c.name || !strings.HasPrefix(got.Version, c.version) {
			t.Errorf("Find(%q) = %s %s, %v; want %s %s", c.want, got.Name, got.Version, err, c.name, c.version)
		}
	}
	seen := map[string]bool{}
	for _, c := range Default(table) {
		if seen[c.Name] {
			t.Errorf("%s twice in the default set", c.Name)
		}
		seen[c.Name] = true
	}
	if seen["registry"] {
		t.Error("every cluster waits for the build of a registry")
	}
	if len(seen) < 10 {
		t.Errorf("only %v in the default set", seen)
	}
}

func TestCommandName(t *testing.T) {
	for pkg, want := range map[string]string{
		"go.etcd.io/etcd/server/v3": "server", "k8s.io/kubernetes/cmd/kubelet": "kubelet",
		"example.com/v2x": "v2x", "example.com/cmd/v": "v",
	} {
		if got := commandName(pkg); got != want {
			t.Errorf("commandName(%s) = %s, want %s", pkg, got, want)
		}
	}
}

// What is published must lie where upstream has it, and fit its sums.
func TestPublish(t *testing.T) {
	const arch = runtime.GOARCH
	table, err := Table("../components")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		component string
		files     []string // {V} is the version, {v} the same without v
		archive   string   // one of them, and what is in it
		holds     []string
	}{
		{"kubernetes", []string{"dl.k8s.io/release/{V}/bin/linux/" + arch + "/kubelet", "dl.k8s.io/release/{V}/bin/linux/" + arch + "/kube-proxy.sha256", "dl.k8s.io/release/stable-1.37.txt"}, "", nil},
		{
			"containerd",
			[]string{"github.com/containerd/containerd/releases/download/{V}/containerd-{v}-linux-" + arch + ".tar.gz.sha256sum"},
			"github.com/containerd/containerd/releases/download/{V}/containerd-{v}-linux-" + arch + ".tar.gz",
			[]string{"bin/", "bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr"},
		},
		{"runc", []string{"github.com/opencontainers/runc/releases/download/{V}/runc." + arch, "github.com/opencontainers/runc/releases/download/{V}/runc.sha256sum"}, "", nil},
		{
			"etcd",
			[]string{"github.com/etcd-io/etcd/releases/download/{V}/SHA256SUMS"},
			"github.com/etcd-io/etcd/releases/download/{V}/etcd-{V}-linux-" + arch + ".tar.gz",
			[]string{"etcd-{V}-linux-" + arch + "/", "etcd-{V}-linux-" + arch + "/etcd", "etcd-{V}-linux-" + arch + "/etcdctl", "etcd-{V}-linux-" + arch + "/etcdutl"},
		},
		{
			"crictl",
			[]string{"github.com/kubernetes-sigs/cri-tools/releases/download/{V}/crictl-{V}-linux-" + arch + ".tar.gz.sha256"},
			"github.com/kubernetes-sigs/cri-tools/releases/download/{V}/crictl-{V}-linux-" + arch + ".tar.gz",
			[]string{"crictl"},
		},
		{
			"registry",
			[]string{"github.com/distribution/distribution/releases/download/{V}/registry_{v}_linux_" + arch + ".tar.gz.sha256"},
			"github.com/distribution/distribution/releases/download/{V}/registry_{v}_linux_" + arch + ".tar.gz",
			[]string{"registry"},
		},
		{
			"flannel-cni",
			[]string{"github.com/flannel-io/cni-plugin/releases/download/{V}/cni-plugin-flannel-linux-" + arch + "-{V}.tgz.sha512"},
			"github.com/flannel-io/cni-plugin/releases/download/{V}/cni-plugin-flannel-linux-" + arch + "-{V}.tgz",
			[]string{"flannel-" + arch},
		},
		{
			"cni-plugins",
			[]string{"github.com/containernetworking/plugins/releases/download/{V}/cni-plugins-linux-" + arch + "-{V}.tgz.sha256"},
			"github.com/containernetworking/plugins/releases/download/{V}/cni-plugins-linux-" + arch + "-{V}.tgz", nil,
		},
	} {
		t.Run(c.component, func(t *testing.T) {
			component, err := Find(table, c.component)
			if err != nil {
				t.Fatal(err)
			}
			fill := func(s string) string {
				return strings.NewReplacer("{V}", component.Version, "{v}", component.Version[1:]).Replace(s)
			}
			dist := publishFake(t, component, arch, "")
			for _, name := range append(c.files, c.archive) {
				if _, err := os.Stat(filepath.Join(dist, fill(name))); err != nil {
					t.Error(err)
				}
			}
			if c.holds != nil {
				var want []string
				for _, h := range c.holds {
					want = append(want, fill(h))
				}
				if diff := cmp.Diff(want, names(t, filepath.Join(dist, fill(c.archive)))); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// What lists all architectures keeps what is known of the first.
func TestPublishBeside(t *testing.T) {
	table, err := Table("../components")
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]string{"etcd": "etcd-io/etcd/releases/download/{V}/SHA256SUMS", "runc": "opencontainers/runc/releases/download/{V}/runc.sha256sum"} {
		component, err := Find(table, name)
		if err != nil {
			t.Fatal(err)
		}
		own := publishFake(t, component, "amd64", "")
		both := publishFake(t, component, "arm64", own)
		read := func(dist string) string {
			text, err := os.ReadFile(filepath.Join(dist, "github.com", strings.ReplaceAll(at, "{V}", component.Version)))
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		known := regexp.MustCompile(`(?m)^[0-9a-f]*[1-9a-f][0-9a-f]*  \S*(amd64|arm64)(\.tar\.gz)?$`)
		first, then := known.FindAllString(read(own), -1), known.FindAllString(read(both), -1)
		if len(first) != 1 || len(then) != 2 || first[0] != then[0] {
			t.Errorf("%s: %q became %q", name, first, then)
		}
	}
}

// publishFake publishes a component whose programs are small files, beside what own has.
func publishFake(t *testing.T, c Component, arch, own string) (dist string) {
	t.Helper()
	p := &publication{arch: arch, bin: t.TempDir(), dist: t.TempDir(), set: filepath.Join("../components", c.set), own: own}
	for _, name := range slices.Sorted(maps.Keys(c.Programs)) {
		if err := os.WriteFile(filepath.Join(p.bin, name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.publish(c, p); err != nil {
		t.Fatal(err)
	}
	return p.dist
}

func names(t *testing.T, archive string) []string {
	t.Helper()
	b, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.FileInfo().Mode().Perm() != 0o755 {
			t.Errorf("%s has mode %v", h.Name, h.FileInfo().Mode())
		}
		list = append(list, h.Name)
	}
}

// A small component goes all the way: built, published nowhere, found again,
// and not built twice.
func TestBuild(t *testing.T) {
	var out strings.Builder
	b, err := NewBuilder(t.Context(), Cache{t.TempDir()}, &out)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := host.Run(t.Context(), "go", "env", "GOCACHE")
	if err != nil {
		t.Fatal(err)
	}
	b.GoCache = strings.TrimSpace(shared)
	table, err := b.Table()
	if err != nil {
		t.Fatal(err)
	}
	pause, err := Find(table, "pause")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := b.Built(pause); ok {
		t.Fatal("built before it was")
	}
	for range 2 {
		if err := b.Build(t.Context(), []Component{pause}); err != nil {
			t.Fatal(err)
		}
	}
	dir, ok := b.Built(pause)
	if _, err := os.Stat(filepath.Join(dir, "bin", "pause")); !ok || err != nil {
		t.Errorf("built: %v, %v", ok, err)
	}
	if n := strings.Count(out.String(), "build 1/1 pause v1: "); n != 1 {
		t.Errorf("built %d times:\n%s", n, out.String())
	}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		on := b.On(arch)
		if err := on.Build(t.Context(), []Component{pause}); err != nil {
			t.Fatal(err)
		}
		dir, _ := on.Built(pause)
		made, err := elf.Open(filepath.Join(dir, "bin", "pause"))
		if err != nil {
			t.Fatal(err)
		}
		made.Close()
		if made.Machine != machine {
			t.Errorf("built for %s: %v", arch, made.Machine)
		}
	}
}

func TestLock(t *testing.T) {
	c := Cache{t.TempDir()}
	unlock, err := c.Lock(t.Context(), "it")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Lock(ctx, "it"); err == nil {
		t.Error("locked twice")
	}
	// Who holds it may remove it; the next one then gets a new one.
	if err := os.Remove(c.Path("locks", "it")); err != nil {
		t.Fatal(err)
	}
	unlock()
	unlock, err = c.Lock(t.Context(), "it")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if _, err := os.Stat(c.Path("locks", "it")); err != nil {
		t.Error(err)
	}
}

// Every set must pin a version for what its components come from.
func TestSets(t *testing.T) {
	used := map[string]bool{}
	for _, c := range components() {
		used[c.set] = true
	}
	sets, err := fs.Glob(os.DirFS("../components"), "*/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sets {
		if !used[filepath.Dir(s)] {
			t.Errorf("%s belongs to no component", s)
		}
	}
}
