package distro

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
)

// testKey is a key that costs nothing.
func testKey(t *testing.T) Key {
	t.Helper()
	dir := t.TempDir()
	resourcetest.SigningKey(t, dir)
	text, err := os.ReadFile(filepath.Join(dir, "os", "signing.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ReadKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestReadKey(t *testing.T) {
	public, err := testKey(t).public()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKey(public); err == nil || err.Error() != "it holds no private key" {
		t.Errorf("of a public key: %v", err)
	}
	if _, err := ReadKey([]byte("none")); err == nil {
		t.Error("of no key: no error")
	}
}

// TestMetadata writes metadata and signatures to a folder, and spoils each file of them.
func TestMetadata(t *testing.T) {
	made, err := NewKey()
	var text bytes.Buffer
	if err = errors.Join(err, made.Write(&text)); err != nil {
		t.Fatal(err)
	}
	key, err := ReadKey(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	other := testKey(t)
	for name, all := range map[string][]Entry{"debian12": socat(t), "rocky9": rpms(t)} {
		t.Run(name, func(t *testing.T) {
			sys, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			m, err := sys.Metadata("amd64", all)
			if err != nil {
				t.Fatal(err)
			}
			files, err := m.Sign(key)
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(files, m.Files)
			dir := t.TempDir()
			write := func(name, text string) {
				t.Helper()
				file := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range files {
				if write(name, string(text)); !IsMetadata(name) {
					t.Errorf("%s is no metadata", name)
				}
			}
			later := m
			later.Files = maps.Clone(m.Files)
			later.Files[m.Top] = []byte(strings.Replace(string(m.Files[m.Top]), "Date: ", "Date: not ", 1))
			if !m.IsIn(dir, key) || !later.IsIn(dir, key) || m.IsIn(dir, other) {
				t.Errorf("as it is %v, later %v, with another key %v", m.IsIn(dir, key), later.IsIn(dir, key), m.IsIn(dir, other))
			}
			for name, text := range files {
				if write(name, "Date: spoilt\n"); m.IsIn(dir, key) {
					t.Errorf("with another %s it is in", name)
				}
				if err := os.Remove(filepath.Join(dir, name)); err != nil || m.IsIn(dir, key) {
					t.Errorf("without %s it is in, %v", name, err)
				}
				write(name, string(text))
			}
			if !m.IsIn(dir, key) {
				t.Error("mended it is not in")
			}
		})
	}
	if IsMetadata("socat_1.0_amd64.deb") || IsMetadata("repodata") {
		t.Error("anything is metadata")
	}
}
