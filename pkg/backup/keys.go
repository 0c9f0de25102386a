package backup

import (
	"errors"
	"fmt"
	"strings"

	"filippo.io/age"
	"filippo.io/age/agessh"
)

// Recipient is who can read backups.
type Recipient = age.Recipient

// Key is with what one does.
type Key = age.Identity

// NewKey makes the key of a recipient of backups: its text, which is for whoever may read them alone, and the recipient, which anybody may know.
func NewKey() (private, recipient string, err error) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return "", "", fmt.Errorf("making a key: %w", err)
	}
	recipient = key.Recipient().String()
	return "# The recovery key of backups of kubexm.\n# public key: " + recipient + "\n" + key.String() + "\n", recipient, nil
}

// Recipients reads who may open backups: public keys of age, or of SSH (ssh-ed25519, ssh-rsa).
func Recipients(texts []string) (all []Recipient, err error) {
	for _, t := range texts {
		r, err := recipient(strings.TrimSpace(t))
		if err != nil {
			return nil, fmt.Errorf("%q is no recipient of backups: %w", t, err)
		}
		all = append(all, r)
	}
	return all, nil
}

func recipient(text string) (Recipient, error) {
	switch {
	case strings.HasPrefix(text, "AGE-SECRET-KEY-"):
		return nil, errors.New("it is a private key; give the public one, which begins with age1")
	case strings.HasPrefix(text, "age1"):
		return age.ParseX25519Recipient(text)
	case strings.HasPrefix(text, "ssh-"):
		return agessh.ParseRecipient(text)
	}
	return nil, errors.New("it is neither a public key of age (age1...) nor one of SSH (ssh-ed25519 ...)")
}

// Keys reads a file of private keys: of age, one a line, or one of SSH without a passphrase.
func Keys(text []byte) ([]Key, error) {
	if strings.Contains(string(text), "-----BEGIN ") {
		key, err := agessh.ParseIdentity(text)
		if err != nil {
			return nil, err
		}
		return []Key{key}, nil
	}
	return age.ParseIdentities(strings.NewReader(string(text)))
}
