package resource

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/kubexm/kubexm/pkg/resource/source"
)

// BenchmarkPack and BenchmarkImport show that memory does not grow with the bundle (peak-MB
// is the same for all sizes), and what they cost compared with zstd alone, on the same bytes
// in the same run: the library at the same level, and the program where it is installed.
// KUBEXM_BENCH_MIB=4096 makes the larger bundle one of 4 GiB; that needs four times the disk.
func BenchmarkPack(b *testing.B) {
	bundles(b, func(b *testing.B, s *Store, items []Item, files []string) {
		dir := b.TempDir()
		file := filepath.Join(dir, "bundle")
		peak := heapPeak()
		for b.Loop() {
			if _, err := s.Pack(b.Context(), Bundle{Path: file, Items: items}, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(peak(), "peak-MB")
		plain := filepath.Join(dir, "plain")
		compare(b, "zstd-lib", func() error { return compress(plain, files) })
		compare(b, "zstd-1", func() error { return zstdProgram(plain, append([]string{"-1", "--single-thread"}, files...)...) })
	})
}

func BenchmarkImport(b *testing.B) {
	bundles(b, func(b *testing.B, s *Store, items []Item, _ []string) {
		dir := b.TempDir()
		file := filepath.Join(dir, "bundle")
		mustPack(b, s, Bundle{Path: file, Items: items})
		peak := heapPeak()
		for b.Loop() {
			to, err := Open(filepath.Join(dir, "store"), source.Config{Offline: true})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := to.Import(b.Context(), file, nil, nil); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := os.RemoveAll(to.dir); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		b.ReportMetric(peak(), "peak-MB")
		plain := filepath.Join(dir, "plain")
		compare(b, "zstd-lib", func() error { return decompress(plain, file) })
		compare(b, "zstd-1", func() error { return zstdProgram(plain, "-d", file) })
	})
}

const fileSize = 32 << 20 // bytes of each file of a store to bundle

// bundles runs fn with stores of two sizes.
func bundles(b *testing.B, fn func(b *testing.B, s *Store, items []Item, files []string)) {
	large := benchSize
	if text := os.Getenv("KUBEXM_BENCH_MIB"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			b.Fatal(err)
		}
		large = n << 20
	}
	for _, size := range []int{fileSize, large} {
		b.Run(fmt.Sprintf("%dMiB", size>>20), func(b *testing.B) {
			s := empty(b)
			var items []Item
			var files []string
			for n := range size / fileSize {
				a := mustNew(b, "kubelet", fmt.Sprintf("1.99.%d", n))
				files = append(files, writeLarge(b, s, a, uint64(n)))
				items = append(items, Item{Artifact: a})
			}
			if _, err := s.Look(b.Context(), items, false); err != nil { // hashes them
				b.Fatal(err)
			}
			b.SetBytes(int64(len(files)) * fileSize)
			fn(b, s, items, files)
		})
	}
}

// writeLarge puts a file into a store: three of four do not compress, as archives and layers
// do not, and one does, by half.
func writeLarge(b *testing.B, s *Store, a Artifact, seed uint64) string {
	b.Helper()
	file := s.path(a)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	f, createErr := os.Create(file)
	if err := errors.Join(err, createErr); err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	buf := make([]byte, 1<<20)
	for range fileSize / len(buf) {
		_, _ = r.Read(buf)
		for i := range buf {
			if seed%4 == 0 {
				buf[i] &= 0x0f
			}
		}
		if _, err := f.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	sum, err := hashFile(file)
	if err == nil {
		err = s.editLock(b.Context(), func(l *lock) error { l.Files[a.key()] = lockedFile{SHA256: sum}; return nil })
	}
	if err != nil {
		b.Fatal(err)
	}
	return file
}

// heapPeak watches the heap; the function that it returns ends that and tells the most it had, in MB.
func heapPeak() func() float64 {
	runtime.GC()
	done := make(chan struct{})
	var wg sync.WaitGroup
	var most uint64
	wg.Go(func() {
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse+m.StackInuse)
			select {
			case <-tick.C:
			case <-done:
				tick.Stop()
				return
			}
		}
	})
	return func() float64 {
		close(done)
		wg.Wait()
		return float64(most) / 1e6
	}
}

// compare reports how many times as long as plain the benchmark's own work took.
func compare(b *testing.B, name string, plain func() error) {
	b.Helper()
	own := b.Elapsed() / time.Duration(b.N)
	begun := time.Now()
	for range b.N {
		if err := plain(); errors.Is(err, exec.ErrNotFound) {
			return
		} else if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(own.Seconds()*float64(b.N)/time.Since(begun).Seconds(), "x-"+name)
}

func compress(to string, files []string) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	for _, name := range files {
		in, err := os.Open(name)
		if err != nil {
			return err
		}
		_, err = io.CopyBuffer(struct{ io.Writer }{z}, in, make([]byte, 256<<10))
		in.Close()
		if err != nil {
			return err
		}
	}
	return errors.Join(z.Close(), f.Sync())
}

func decompress(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{z}, make([]byte, 256<<10))
	return errors.Join(err, out.Sync())
}

// zstdProgram runs zstd, with its output in a file.
func zstdProgram(to string, args ...string) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.Command("zstd", append([]string{"-q", "-c"}, args...)...)
	cmd.Stdout, cmd.Stderr = f, os.Stderr
	return errors.Join(cmd.Run(), f.Sync())
}
