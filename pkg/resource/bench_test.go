package resource

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

const benchSize = 256 << 20

// BenchmarkFetch downloads, hashes and syncs; BenchmarkCopy is the bare
// minimum to compare with.
func BenchmarkFetch(b *testing.B) {
	u, a := newUpstream(b), mustNew(b, "kubelet", "1.99.7")
	u.publish(b, a, noise(1, benchSize))
	s := openStore(b, b.TempDir(), u)
	b.SetBytes(benchSize)
	for b.Loop() {
		path, err := s.Fetch(b.Context(), a, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCopy(b *testing.B) {
	u, a := newUpstream(b), mustNew(b, "kubelet", "1.99.7")
	path := u.publish(b, a, noise(1, benchSize))
	file := filepath.Join(b.TempDir(), "kubelet")
	b.SetBytes(benchSize)
	for b.Loop() {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, u.URL+path, nil)
		if err != nil {
			b.Fatal(err)
		}
		resp, err := u.Client().Do(req)
		if err != nil {
			b.Fatal(err)
		}
		f, err := os.Create(file)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(f, resp.Body); err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}

// BenchmarkPack and BenchmarkImport show that memory does not grow with the bundle: B/op is the same for both sizes.
func BenchmarkPack(b *testing.B) {
	for _, size := range []int{benchSize / 8, benchSize} {
		b.Run(fmt.Sprintf("%dMiB", size>>20), func(b *testing.B) {
			s, items := large(b, size)
			file := filepath.Join(b.TempDir(), "bundle")
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				mustPack(b, s, Bundle{Path: file, Items: items})
			}
		})
	}
}

func BenchmarkImport(b *testing.B) {
	for _, size := range []int{benchSize / 8, benchSize} {
		b.Run(fmt.Sprintf("%dMiB", size>>20), func(b *testing.B) {
			s, items := large(b, size)
			file := filepath.Join(b.TempDir(), "bundle")
			mustPack(b, s, Bundle{Path: file, Items: items})
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				to := empty(b)
				if _, err := to.Import(b.Context(), file, nil, nil); err != nil {
					b.Fatal(err)
				}
				if err := os.RemoveAll(to.dir); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// large returns a store with a program of so many bytes.
func large(b *testing.B, size int) (*Store, []Item) {
	b.Helper()
	u, a := newUpstream(b), mustNew(b, "kubelet", "1.99.7")
	u.publish(b, a, noise(1, size))
	s := openStore(b, b.TempDir(), u)
	if _, err := s.Fetch(b.Context(), a, nil); err != nil {
		b.Fatal(err)
	}
	return s, []Item{{Artifact: a}}
}
