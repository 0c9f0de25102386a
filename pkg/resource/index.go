package resource

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

const (
	sumsFile  = "SHA256SUMS"
	indexFile = ".verified.json"
)

// look is what a file looked like when it was last hashed. As long as it
// still looks so, it is not hashed again.
type look struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	MTime  int64  `json:"mtime"` // nanoseconds since 1970
	Inode  uint64 `json:"inode"`
}

// lookAt returns what the file at path looks like, with the SHA-256 it is known or hoped to have.
func lookAt(path, sum string) (look, error) {
	info, err := os.Stat(path)
	if err != nil {
		return look{}, err
	}
	l := look{SHA256: sum, Size: info.Size(), MTime: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		l.Inode = sys.Ino
	}
	return l, nil
}

// sumIs reports whether the file at path is there and has that SHA-256.
func sumIs(path, sum string) bool {
	now, err := lookAt(path, sum)
	if err != nil {
		return false
	}
	if verified(filepath.Dir(path))[filepath.Base(path)] == now {
		return true
	}
	if got, err := hashFile(path); err != nil || got != sum {
		return false
	}
	remember(filepath.Dir(path), map[string]string{filepath.Base(path): sum})
	return true
}

// remember notes in a folder the sums of files in it. That only saves time: a
// folder that cannot be written to does without.
func remember(dir string, sums map[string]string) {
	_ = edit(context.Background(), filepath.Join(dir, indexFile), func([]byte) ([]byte, error) {
		all := maps.Clone(verified(dir))
		for name, sum := range sums {
			if now, err := lookAt(filepath.Join(dir, name), sum); err == nil {
				all[name] = now
			}
		}
		return json.Marshal(all)
	})
}

// verified returns what the files of a folder looked like when they were hashed. It is shared: to change it, clone it.
func verified(dir string) map[string]look {
	all, err := indexes.get(filepath.Join(dir, indexFile), func(content []byte) (all map[string]look, err error) {
		err = json.Unmarshal(content, &all)
		return all, err
	})
	if err != nil || all == nil {
		return map[string]look{} // what cannot be read is hashed again
	}
	return all
}

var (
	indexes parsed[map[string]look]
	locks   parsed[lock]
)

// parsed holds what was made of files, by their paths. A file is read again when it looks different: the notes of a
// folder are asked for each file in it, and the lock for each image.
type parsed[T any] struct{ made sync.Map }

type made[T any] struct {
	of    look
	value T
}

func (p *parsed[T]) get(path string, read func([]byte) (T, error)) (T, error) {
	now, err := lookAt(path, "")
	if err != nil {
		return *new(T), err
	}
	is, _ := p.made.Load(path)
	if m, ok := is.(made[T]); ok && m.of == now {
		return m.value, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return *new(T), err
	}
	value, err := read(content)
	if err == nil {
		p.made.Store(path, made[T]{now, value}) // for how it looked before it was read: a newer one is read again
	}
	return value, err
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyBuffer(h, f, make([]byte, 256<<10)); err != nil {
		return "", err
	}
	return hexSum(h), nil
}

// formatSums returns the content of a SHA256SUMS file, parseSums reads it.
func formatSums(sums map[string]string) []byte {
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&text, "%s  %s\n", sums[name], name)
	}
	return text.Bytes()
}

func readSums(dir string) map[string]string {
	sums := map[string]string{}
	content, _ := os.ReadFile(filepath.Join(dir, sumsFile)) // none: nothing is recorded
	for line := range strings.Lines(string(content)) {
		if f := strings.Fields(line); len(f) == 2 {
			sums[f[1]] = f[0]
		}
	}
	return sums
}
