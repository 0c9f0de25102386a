package backup_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/kubexm/kubexm/pkg/backup"
)

var manifest = backup.Manifest{Cluster: "prod", ID: "1234", Taken: time.Date(2026, 11, 25, 2, 0, 0, 0, time.UTC), Kubernetes: "v1.37.1"}

// content is a file that does not compress, of several chunks of age.
func content() []byte {
	b := make([]byte, 300_000)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func key(t *testing.T) ([]backup.Recipient, []backup.Key) {
	t.Helper()
	private, public, err := backup.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return pair(t, private, public)
}

func pair(t *testing.T, private, public string) ([]backup.Recipient, []backup.Key) {
	t.Helper()
	recipients, err1 := backup.Recipients([]string{public})
	keys, err2 := backup.Keys([]byte(private))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return recipients, keys
}

func written(t *testing.T, recipients []backup.Recipient, entries ...backup.Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := backup.Write(&b, recipients, manifest, entries...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// read returns the files of a backup.
func read(sealed []byte, keys []backup.Key) (m *backup.Manifest, files map[string]string, err error) {
	files = map[string]string{}
	m, err = backup.Read(bytes.NewReader(sealed), keys, func(name string, _ int64, r io.Reader) error {
		text, err := io.ReadAll(r)
		files[name] = string(text)
		return err
	})
	return m, files, err
}

// TestRead reads what was written, by whoever may.
func TestRead(t *testing.T) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err1 := ssh.MarshalPrivateKey(private, "")
	public, err2 := ssh.NewPublicKey(private.Public())
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"cluster.yaml": "kind: Cluster\n", "certs/id": "", "etcd.db": string(content())}
	var entries []backup.Entry
	for name, text := range want {
		entries = append(entries, backup.Bytes(name, []byte(text)))
	}
	ageR, ageK := key(t)
	sshR, sshK := pair(t, string(pem.EncodeToMemory(block)), string(ssh.MarshalAuthorizedKey(public)))
	for name, c := range map[string]struct {
		recipients []backup.Recipient
		keys       []backup.Key
	}{
		"age": {ageR, ageK}, "SSH": {sshR, sshK}, "both": {append(ageR, sshR...), sshK}, "everybody": {nil, nil}, "everybody, with a key": {nil, ageK},
	} {
		sealed := written(t, c.recipients, entries...)
		m, files, err := read(sealed, c.keys)
		if err != nil || m.ID != manifest.ID || !m.Taken.Equal(manifest.Taken) || !maps.Equal(files, want) {
			t.Errorf("%s: %v, %v, %d files", name, err, m, len(files))
		}
		if m, err := backup.ReadManifest(bytes.NewReader(sealed), c.keys); err != nil || m.Cluster != "prod" {
			t.Errorf("%s: manifest: %v, %v", name, m, err)
		}
		if c.recipients != nil && bytes.Contains(sealed, []byte("kind: Cluster")) {
			t.Errorf("%s: it is not encrypted", name)
		}
	}
}

// TestDamaged finds every cut and every changed byte, in encrypted backups and in others.
func TestDamaged(t *testing.T) {
	recipients, keys := key(t)
	for _, to := range [][]backup.Recipient{recipients, nil} {
		whole := written(t, to, backup.Bytes("etcd.db", content()), backup.Bytes("cluster.yaml", []byte("x")))
		for at := 0; at < len(whole); at += 1 + len(whole)/300 {
			if _, _, err := read(whole[:at], keys); err == nil {
				t.Errorf("cut after %d of %d bytes, and nobody knows", at, len(whole))
			}
			bent := bytes.Clone(whole)
			bent[at] ^= 0x20
			if _, _, err := read(bent, keys); err == nil {
				t.Errorf("byte %d of %d changed, and nobody knows", at, len(whole))
			}
		}
		if _, _, err := read(whole[:len(whole)-1], keys); err == nil {
			t.Error("the last byte is missing, and nobody knows")
		}
	}
}

// TestStrangers refuses what was not made to be read, or not for this reader.
func TestStrangers(t *testing.T) {
	recipients, keys := key(t)
	_, others := key(t)
	sealed := written(t, recipients, backup.Bytes("a", nil))
	if _, _, err := read(sealed, others); !errors.Is(err, backup.ErrRecipient) {
		t.Errorf("another's key: %v", err)
	}
	if _, _, err := read(sealed, nil); err == nil || !strings.Contains(err.Error(), "no key is given") {
		t.Errorf("no key: %v", err)
	}
	for name, text := range map[string][]byte{"nothing": nil, "a text": []byte("hello"), "a header alone": sealed[:100]} {
		if _, _, err := read(text, keys); err == nil {
			t.Errorf("%s is a backup", name)
		}
	}
	for _, name := range []string{"../etc/passwd", "/etc/passwd", "a/../../b", backup.ManifestName} {
		if _, _, err := read(written(t, nil, backup.Bytes(name, nil)), nil); err == nil || !strings.Contains(err.Error(), "what no backup of kubexm has") {
			t.Errorf("file %q: %v", name, err)
		}
	}
}

// TestNotWritten fails where a file is not what was said, and where the disk is full.
func TestNotWritten(t *testing.T) {
	recipients, _ := key(t)
	broken := errors.New("the connection was cut")
	for name, e := range map[string]backup.Entry{
		"too short": {Name: "etcd.db", Size: 10, Write: func(w io.Writer) error { _, err := w.Write([]byte("short")); return err }},
		"too long":  {Name: "etcd.db", Size: 2, Write: func(w io.Writer) error { _, err := w.Write([]byte("long")); return err }},
		"broken":    {Name: "etcd.db", Size: 10, Write: func(io.Writer) error { return broken }},
	} {
		if err := backup.Write(io.Discard, recipients, manifest, e); err == nil || !strings.HasPrefix(err.Error(), "etcd.db: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for room := 0; room < 300_000; room += 20_000 {
		if err := backup.Write(&full{room}, recipients, manifest, backup.Bytes("etcd.db", content())); !errors.Is(err, errFull) {
			t.Errorf("%d bytes free: %v", room, err)
		}
	}
}

var errFull = errors.New("no space left on device")

type full struct{ room int }

func (f *full) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// TestRecipients takes public keys alone.
func TestRecipients(t *testing.T) {
	private, public, err := backup.NewKey()
	if err != nil || !strings.HasPrefix(public, "age1") {
		t.Fatal(public, err)
	}
	for _, bad := range []string{"", "age1", "hello", strings.Fields(private)[len(strings.Fields(private))-1], "ssh-dss AAAA"} {
		if _, err := backup.Recipients([]string{public, bad}); err == nil {
			t.Errorf("%q is a recipient", bad)
		}
	}
	for _, bad := range []string{"", "# nothing\n", "AGE-SECRET-KEY-1", "-----BEGIN OPENSSH PRIVATE KEY-----\n"} {
		if _, err := backup.Keys([]byte(bad)); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
}
