package resource

import (
	"archive/tar"
	"errors"
	"fmt"

	"github.com/kubexm/kubexm/pkg/signature"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// signatureFile is a bundle's member with the signature of its manifest, right after that.
const signatureFile = manifestFile + ".sig"

// SignatureSpace is the namespace of signatures of bundles: one made for anything else is none.
const SignatureSpace = "kubexm-bundle"

// sign returns the signature of a manifest; nil where there is no key.
func sign(text []byte, file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	key, err := signature.Open(file)
	if err != nil {
		return nil, err
	}
	defer key.Close()
	return key.Sign(SignatureSpace, text)
}

// signed checks the signature of a manifest, if it has one or must have.
func (i *imports) signed(text []byte) error {
	h, err := i.tar.Next()
	if err == nil && h.Name == signatureFile && h.Typeflag == tar.TypeReg {
		sig, err := i.text(h.Size)
		if err == nil {
			i.done.Signer, err = signature.Verify(SignatureSpace, text, sig, i.keys)
		}
		i.done.Trusted = i.keys != nil && err == nil
		switch {
		case errors.Is(err, signature.ErrOther):
			return fault.Advise(err, "ask whoever made the bundle for the public key, and give that with --verify-key")
		case err != nil:
			return fault.Advise(fmt.Errorf("member %s: %w", signatureFile, err), "do not use the bundle: it is not what was signed. Find out where it comes from")
		}
		return nil
	}
	if err != nil {
		err = fmt.Errorf("after %s: %w", manifestFile, i.cut(err))
	} else if i.ahead = h; i.keys != nil {
		err = fault.Advise(errors.New("it is not signed, and --verify-key asks for a signature"),
			"make it with 'kubexm download --export --sign-key', or, if you know where it comes from, import it without --verify-key")
	}
	return err
}

// header returns the next header, which may have been read ahead.
func (i *imports) header() (*tar.Header, error) {
	if h := i.ahead; h != nil {
		i.ahead = nil
		return h, nil
	}
	return i.tar.Next()
}
