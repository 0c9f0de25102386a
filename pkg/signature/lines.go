package signature

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// publicKey reads a line of a file of public keys; nil: it is for other namespaces. What
// would take more than a look at the key is refused: options of allowed_signers that limit
// its time or make it an authority (ssh-keygen(1), ALLOWED SIGNERS).
func publicKey(text []byte, namespace string) (ssh.PublicKey, error) {
	key, _, options, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil { // principals, then options
		if _, rest, ok := bytes.Cut(text, []byte(" ")); ok {
			key, _, options, _, err = ssh.ParseAuthorizedKey(bytes.TrimSpace(rest))
		}
	}
	if err != nil {
		return nil, errors.New("no public key")
	}
	wanted := true
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		switch strings.ToLower(name) {
		case "cert-authority", "valid-after", "valid-before":
			return nil, fmt.Errorf("the option %s is not supported: give the key without it", name)
		case "namespaces":
			wanted = slices.ContainsFunc(strings.Split(strings.Trim(value, `"`), ","), func(pattern string) bool {
				ok, _ := path.Match(pattern, namespace)
				return ok
			})
		}
	}
	if !wanted {
		return nil, nil
	}
	return key, nil
}
