package resource

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/util/golden"
)

// tgz packs files with a content; names that end in "->" are symbolic links to it.
func tgz(t testing.TB, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o600, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg}
		if name, ok := strings.CutSuffix(files[i], "->"); ok {
			h = &tar.Header{Name: name, Linkname: files[i+1], Typeflag: tar.TypeSymlink}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(files[i+1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// fetched returns a store with an artifact whose archive has this content.
func fetched(t *testing.T, a Artifact, content []byte) *Store {
	t.Helper()
	u := newUpstream(t)
	u.publish(t, a, content)
	s := openStore(t, t.TempDir(), u)
	mustFetch(t, s, a, content)
	return s
}

func TestPrograms(t *testing.T) {
	for _, tt := range []struct {
		component, version string
		files              []string // nil: published bare
		want               []string
	}{
		{"etcd", "3.6.14", []string{
			"etcd-v3.6.14-linux-amd64/etcd", "E", "etcd-v3.6.14-linux-amd64/etcdctl", "C", "etcd-v3.6.14-linux-amd64/etcdutl", "U",
			"etcd-v3.6.14-linux-amd64/README.md", "R",
		}, []string{"etcd=E", "etcdctl=C", "etcdutl=U"}},
		{
			"containerd", "2.3.4",
			[]string{"bin/ctr", "c", "bin/containerd", "d", "bin/containerd-stress", "x", "bin/containerd-shim-runc-v2", "s"},
			[]string{"containerd=d", "containerd-shim-runc-v2=s", "ctr=c"},
		},
		{"cni-plugins", "1.9.1", []string{"./bridge", "b", "./host-local", "h", "./LICENSE", "L", "./README.md", "R"}, []string{"bridge=b", "host-local=h"}},
		{"crictl", "1.36.0", []string{"crictl", "c"}, []string{"crictl=c"}},
		{"runc", "1.5.1", nil, []string{"runc=bare"}},
		{"kubelet", "1.99.7", nil, []string{"kubelet=bare"}},
	} {
		t.Run(tt.component, func(t *testing.T) {
			a, content := mustNew(t, tt.component, tt.version), []byte("bare")
			if tt.files != nil {
				content = tgz(t, tt.files...)
			}
			s := fetched(t, a, content)
			for range 2 {
				members, err := s.Programs(t.Context(), a)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, m := range members {
					content, err := os.ReadFile(m.Path)
					if err != nil || m.Mode != 0o755 || m.Size != int64(len(content)) || m.SHA256 != sumOf(content) {
						t.Errorf("%+v, %v", m, err)
					}
					got = append(got, m.Name+"="+string(content))
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("members (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestProgramsFail(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files []string
	}{
		{"a path out of the folder", []string{"x/etcd", "E", "x/etcdctl", "C", "x/etcdutl", "U", "../../etcd", "evil"}},
		{"an absolute path", []string{"/etc/passwd", "evil"}},
		{"a link in the place of a program", []string{"x/etcd->", "/etc/shadow", "x/etcdctl", "C", "x/etcdutl", "U"}},
		{"a member in the place of the sums", []string{"x/etcd", "E", "x/SHA256SUMS", "S"}},
		{"a member missing", []string{"x/etcd", "E", "x/etcdctl", "C"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := mustNew(t, "etcd", "3.6.14")
			s := fetched(t, a, tgz(t, tt.files...))
			_, err := s.Programs(t.Context(), a)
			golden.Equal(t, told(err, s.dir, "STORE"))
			if left, _ := filepath.Glob(filepath.Join(s.dir, "*etcd")); len(left) != 1 {
				t.Errorf("outside of its folder: %q", left)
			}
		})
	}
	t.Run("not fetched", func(t *testing.T) {
		s := openStore(t, t.TempDir(), newUpstream(t))
		_, err := s.Programs(t.Context(), mustNew(t, "etcd", "3.6.14"))
		golden.Equal(t, told(err, s.dir, "STORE"))
	})
	t.Run("no archive", func(t *testing.T) {
		a := mustNew(t, "etcd", "3.6.14")
		s := fetched(t, a, []byte("plain"))
		_, err := s.Programs(t.Context(), a)
		golden.Equal(t, told(err, s.dir, "STORE"))
	})
}

// An archive that cannot be unpacked is fetched again, also where its checksum was wrong with it.
func TestBadArchive(t *testing.T) {
	a := mustNew(t, "etcd", "3.6.14")
	u := newUpstream(t)
	u.publish(t, a, []byte("<html>log in first</html>"))
	s := openStore(t, t.TempDir(), u)
	for try := range 2 {
		if _, err := s.Fetch(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		members, err := s.Programs(t.Context(), a)
		if (err == nil) != (try == 1) || try == 1 && len(members) != 3 {
			t.Fatalf("try %d: %v, %v", try, members, err)
		}
		u.publish(t, a, tgz(t, "x/etcd", "E", "x/etcdctl", "C", "x/etcdutl", "U"))
	}
}

func TestProgramsHeal(t *testing.T) {
	a := mustNew(t, "etcd", "3.6.14")
	s := fetched(t, a, tgz(t, "x/etcd", "E", "x/etcdctl", "C", "x/etcdutl", "U"))
	dir := filepath.Dir(s.path(a))
	for name, harm := range map[string]func() error{
		"changed":                  func() error { return os.WriteFile(filepath.Join(dir, "etcd"), []byte("X"), 0o644) },
		"deleted":                  func() error { return os.Remove(filepath.Join(dir, "etcdctl")) },
		"killed before the sums":   func() error { return os.WriteFile(filepath.Join(dir, sumsFile), nil, 0o644) },
		"killed while unpacking":   func() error { return os.Rename(filepath.Join(dir, "etcd"), filepath.Join(dir, "etcd.part")) },
		"the notes are unreadable": func() error { return os.WriteFile(filepath.Join(dir, indexFile), []byte("{"), 0o644) },
	} {
		if _, err := s.Programs(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		members, err := s.Programs(t.Context(), a)
		if err != nil || len(members) != 3 || members[0].SHA256 != sumOf([]byte("E")) {
			t.Errorf("%s: got %+v, %v", name, members, err)
		}
		sums, err := os.ReadFile(filepath.Join(dir, sumsFile))
		if err != nil || strings.Count(string(sums), "\n") != 4 {
			t.Errorf("%s: SHA256SUMS: %v\n%s", name, err, sums)
		}
	}
}

// A file that looks as it did when it was hashed is not read again.
func TestVerifiedFilesAreNotReadAgain(t *testing.T) {
	a := mustNew(t, "kubelet", "1.99.7")
	s := fetched(t, a, program)
	path := s.path(a)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, noise(9, len(program)), 0o644); err != nil { // same size and inode
		t.Fatal(err)
	}
	if sumIs(path, sumOf(program)) {
		t.Error("a change that shows in the time of the file is not seen")
	}
	if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
	if !sumIs(path, sumOf(program)) {
		t.Error("the file was read although it looks the same")
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, program, 0o644); err != nil {
		t.Fatal(err)
	}
	if !sumIs(path, sumOf(program)) || sumIs(path+".gone", sumOf(program)) {
		t.Error("a new file with the right content is not taken")
	}
}

func TestCheckSpace(t *testing.T) {
	if err := CheckSpace(filepath.Join(t.TempDir(), "not", "yet"), 1); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(CheckSpace(t.TempDir(), 1<<60)); !strings.Contains(got, "1048576.0 TiB needed") {
		t.Error(got)
	}
}
