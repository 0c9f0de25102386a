package resource

import (
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
