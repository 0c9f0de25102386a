package resourcetest

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// SigningKey gives the store in a directory the key that signs its repositories, the same to all: to make one takes a while.
func SigningKey(t testing.TB, store string) {
	t.Helper()
	key, err := signingKey()
	dir := filepath.Join(store, "os")
	if err = errors.Join(err, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "signing.key"), key, 0o600)); err != nil {
		t.Fatal(err)
	}
}

var signingKey = sync.OnceValues(func() ([]byte, error) {
	secret, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	private := packet.NewSignerPrivateKey(time.Unix(0, 0), secret)
	key := &openpgp.Entity{PrimaryKey: &private.PublicKey, PrivateKey: private, Identities: map[string]*openpgp.Identity{}}
	var text bytes.Buffer
	w, err := armor.Encode(&text, openpgp.PrivateKeyType, nil)
	if err = errors.Join(err, key.AddUserId("test", "", "", nil)); err != nil {
		return nil, err
	}
	err = errors.Join(key.SerializePrivate(w, nil), w.Close())
	return text.Bytes(), err
})
