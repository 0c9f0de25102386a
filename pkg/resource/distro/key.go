package distro

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"io"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// Key is an OpenPGP key that signs repositories.
type Key struct{ entity *openpgp.Entity }

// NewKey makes a key that only signs: openpgp.NewEntity would make a second one, to encrypt with, for
// nobody, in another half second. It is RSA, for the package managers of CentOS 7 know nothing newer.
func NewKey() (Key, error) {
	secret, err := rsa.GenerateKey(rand.Reader, 3072)
	if err != nil {
		return Key{}, err
	}
	private := packet.NewSignerPrivateKey(time.Now(), secret)
	key := &openpgp.Entity{PrimaryKey: &private.PublicKey, PrivateKey: private, Identities: map[string]*openpgp.Identity{}}
	return Key{key}, key.AddUserId("kubexm", "packages of this store", "", nil)
}

// ReadKey reads what Write has written: one key, with its private part.
func ReadKey(text []byte) (Key, error) {
	keys, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(text))
	if err != nil {
		return Key{}, err
	}
	if len(keys) != 1 || keys[0].PrivateKey == nil {
		return Key{}, errors.New("it holds no private key")
	}
	return Key{keys[0]}, nil
}

// Write writes the key in ASCII armor, with its private part.
func (k Key) Write(to io.Writer) error {
	return armored(to, openpgp.PrivateKeyType, func(w io.Writer) error { return k.entity.SerializePrivate(w, nil) })
}

// public is the public part, in ASCII armor.
func (k Key) public() ([]byte, error) {
	var text bytes.Buffer
	err := armored(&text, openpgp.PublicKeyType, k.entity.Serialize)
	return text.Bytes(), err
}

// detached is a signature of a text that is another file.
func (k Key) detached(text []byte) ([]byte, error) {
	var signature bytes.Buffer
	err := openpgp.ArmoredDetachSign(&signature, k.entity, bytes.NewReader(text), nil)
	return signature.Bytes(), err
}

// clearsigned is a text with its signature.
func (k Key) clearsigned(text []byte) ([]byte, error) {
	var signed bytes.Buffer
	w, err := clearsign.Encode(&signed, k.entity.PrivateKey, nil)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(text)
	err = errors.Join(err, w.Close())
	return signed.Bytes(), err
}

func armored(to io.Writer, kind string, write func(io.Writer) error) error {
	w, err := armor.Encode(to, kind, nil)
	if err != nil {
		return err
	}
	return errors.Join(write(w), w.Close())
}
