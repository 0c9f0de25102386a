package signature

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/kubexm/kubexm/pkg/connector/sshtest"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

const space = "kubexm-test"

var text = []byte("what is signed\n")

// newKey writes a key of a kind to a file, and its public key beside it, to FILE.pub.
func newKey(t *testing.T, kind, passphrase string) (file string, key crypto.PrivateKey) {
	t.Helper()
	var err error
	switch kind {
	case "rsa":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ecdsa":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "a comment")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "a comment", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "id_"+kind)
	err = os.WriteFile(file, pem.EncodeToMemory(block), 0o600)
	if err := errors.Join(err, os.WriteFile(file+".pub", ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o600)); err != nil {
		t.Fatal(err)
	}
	return file, key
}

func mustSign(t *testing.T, file string) (signature []byte, fingerprint string) {
	t.Helper()
	k, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	signature, err = k.Sign(space, text)
	if err != nil {
		t.Fatal(err)
	}
	return signature, k.Fingerprint()
}

func mustRead(t *testing.T, file string) []string {
	t.Helper()
	keys, err := PublicKeys(file, space)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestSign(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "")
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		t.Run(kind, func(t *testing.T) {
			file, _ := newKey(t, kind, "")
			sig, name := mustSign(t, file)
			if again, _ := mustSign(t, file); kind != "ecdsa" && !bytes.Equal(sig, again) {
				t.Error("signed again it is another")
			}
			for _, keys := range [][]string{nil, mustRead(t, file+".pub")} {
				if got, err := Verify(space, text, sig, keys); err != nil || got != name {
					t.Errorf("Verify: %q, %v, want %q", got, err, name)
				}
			}
			other, _ := newKey(t, kind, "")
			if got, err := Verify(space, text, sig, mustRead(t, other+".pub")); !errors.Is(err, ErrOther) || got != name {
				t.Errorf("another key: %q, %v", got, err)
			}
			if _, err := Verify(space, append(text, 'x'), sig, nil); err == nil || errors.Is(err, ErrOther) {
				t.Errorf("another text: %v", err)
			}
			if _, err := Verify("git", text, sig, nil); err == nil {
				t.Error("another namespace is not minded")
			}
			for n := range len(sig) - 60 { // not the padding at the end, which means nothing
				bad := bytes.Clone(sig)
				bad[n] ^= 2
				if _, err := Verify(space, text, bad, mustRead(t, file+".pub")); err == nil {
					t.Fatalf("changed at byte %d of %d it is still good", n, len(sig))
				}
			}
			sshKeygen(t, file, sig)
		})
	}
	if _, err := Verify(space, text, []byte("hello"), nil); err == nil {
		t.Error("a text is a signature")
	}
}

// sshKeygen lets OpenSSH verify a signature, and verifies one of OpenSSH's.
func sshKeygen(t *testing.T, file string, sig []byte) {
	t.Helper()
	program, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Log("not compared with OpenSSH: ssh-keygen is not installed")
		return
	}
	dir := t.TempDir()
	public, err := os.ReadFile(file + ".pub")
	for name, content := range map[string][]byte{"sig": sig, "text": text, "allowed": append([]byte("me@example.com namespaces=\""+space+"\" "), public...)} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	verify := exec.CommandContext(t.Context(), program, "-Y", "verify", "-f", "allowed", "-I", "me@example.com", "-n", space, "-s", "sig")
	verify.Dir, verify.Stdin = dir, bytes.NewReader(text)
	if out, err := verify.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "Good ") {
		t.Errorf("OpenSSH says %q, %v", out, err)
	}
	sign := exec.CommandContext(t.Context(), program, "-Y", "sign", "-f", file, "-n", space, "text")
	sign.Dir = dir
	if out, err := sign.CombinedOutput(); err != nil {
		t.Fatalf("OpenSSH says %q, %v", out, err)
	}
	theirs, err := os.ReadFile(filepath.Join(dir, "text.sig"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(space, text, theirs, mustRead(t, filepath.Join(dir, "allowed"))); err != nil {
		t.Errorf("a signature by OpenSSH: %v", err)
	}
}

func TestAgent(t *testing.T) {
	t.Setenv("SSH_AUTH_SOCK", "")
	locked, key := newKey(t, "ed25519", "hush")
	fails := func(what, file, want string) {
		t.Helper()
		if _, err := Open(file); err == nil || !strings.Contains(err.Error(), want) || fault.Advice(err) == "" && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, advice %q", what, err, fault.Advice(err))
		}
	}
	fails("without an agent", locked, "needs a passphrase")
	fails("a public key", locked+".pub", "the SSH agent does not hold SHA256:")
	fails("no key", "sign_test.go", "is not a private key")
	fails("no file", "nonexistent", "no such file")

	keys := sshtest.Agent(t)
	fails("an agent without it", locked, "the SSH agent does not hold SHA256:")
	if err := keys.Add(agent.AddedKey{PrivateKey: key}); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{locked, locked + ".pub"} {
		sig, name := mustSign(t, file)
		if got, err := Verify(space, text, sig, mustRead(t, locked+".pub")); err != nil || got != name {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
}

func TestPublicKeys(t *testing.T) {
	file, _ := newKey(t, "ed25519", "")
	content, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	key := strings.TrimSpace(string(content))
	for name, tt := range map[string]struct {
		text string
		want string // of the error
	}{
		"as ssh-keygen wrote it":             {key + " me@host\n", ""},
		"authorized_keys":                    {"# ours\n\nno-pty,command=\"ls -l\" " + key + " me\n", ""},
		"allowed_signers":                    {"me@example.com,*@example.org " + key + "\n", ""},
		"allowed_signers for it":             {"me@example.com namespaces=\"git,kubexm-*\" " + key + "\n", ""},
		"allowed_signers for something else": {"me@example.com namespaces=\"git\" " + key + "\n", "no public key for the namespace kubexm-test"},
		"an authority":                       {"*@example.com cert-authority " + key + "\n", "line 1: the option cert-authority is not supported"},
		"an authority of authorized_keys":    {"cert-authority " + key + "\n", "line 1: the option cert-authority is not supported"},
		"for a time":                         {"\nme valid-before=\"20300101\" " + key + "\n", "line 2: the option valid-before is not supported"},
		"not a key":                          {key + "\nhello world\n", "line 2: no public key"},
		"nothing":                            {"# nothing\n", "no public key for"},
	} {
		file := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := PublicKeys(file, space)
		if tt.want == "" && (err != nil || fmt.Sprint(got) != "["+key+"]") || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || fault.Advice(err) == "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := PublicKeys("nonexistent", space); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
