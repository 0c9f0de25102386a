package resource

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/signature"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// proof is what a publisher says of a file of its own, whoever hands it on (ADR 0038).
type proof struct {
	Signature   string `json:"signature,omitempty"`   // as published: in base64
	Certificate string `json:"certificate,omitempty"` // of who made it, the same
	Unsigned    bool   `json:"unsigned,omitempty"`    // none was found, of a file that its publisher signs
}

// signer is who signs a file of the store.
func signer(key string) plugin.Signer {
	name, _, _ := strings.Cut(key, "/")
	c, _ := find(name) // packages are of no component
	return c.Signer
}

// verify checks the signature of a file that has a signer.
func (s *Store) verify(key string, f lockedFile) error {
	sum, err := hex.DecodeString(f.SHA256)
	if err != nil {
		return err
	}
	return s.authority.Verify(sum, []byte(f.Signature), []byte(f.Certificate), signature.Identity(signer(key)))
}

var errUnsigned = errors.New("it is not signed")

// proofs verifies the signatures in a lock, and tells of each file that has a signer what is wrong: errUnsigned where there is no signature.
func (s *Store) proofs(l lock) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(l.Files)) {
			f, err := l.Files[key], errUnsigned
			if f.Signature != "" {
				err = s.verify(key, f)
			}
			if signer(key) != (plugin.Signer{}) && !yield(key, err) {
				return
			}
		}
	}
}

// prove finds the signature of an artifact whose checksum, in f, was read at a place. It may come from anywhere: it proves itself. Nobody
// else is asked where the publisher has none, nor, unless one is required, for what a mirror of the user's own has: it may be their build.
// A signature that is wrong is an error.
func (s *Store) prove(ctx context.Context, a Artifact, c Component, f lockedFile, at source.Place) (proof, error) {
	if c.Signer == (plugin.Signer{}) {
		return proof{}, nil
	}
	places, retry := s.source.SumPlaces(a.expand(c.Base+"{file}")), s.retry
	if !s.source.Signed {
		retry.Rounds = min(retry.Rounds, 2)
		if at.Own() {
			places = places[:1]
		}
	}
	var none, wrong error
	err := source.Try(ctx, retry, places, func(place source.Place) error {
		if f.proof, none = s.proofAt(ctx, place, place.Original() && !at.Original()); none == nil {
			if wrong = s.verify(a.key(), f); wrong != nil {
				wrong = fmt.Errorf("%s is not what was signed: its SHA-256 is %s, as %s says, and the signature at %s.sig is wrong: %w", a, f.SHA256, f.From, source.Redacted(place.URL), wrong)
			}
			return nil
		}
		if place.Original() && source.Missing(none) {
			return nil
		}
		return none
	})
	switch {
	case ctx.Err() != nil:
		return proof{}, context.Cause(ctx)
	case wrong != nil:
		advice := "do not use what these servers have: ask who runs them, or choose others (spec.source); if Kubernetes signs in another way by now, a newer kubexm knows how"
		if at.Own() {
			advice += "; beside your own build there must be no such signature, and none must be required"
		}
		return proof{}, fault.Advise(wrong, advice)
	case none == nil:
		return f.proof, nil
	case s.source.Signed:
		return proof{}, fault.Advise(fmt.Errorf("%s is not signed, and spec.source.requireSignatures asks for it: %w", a, cmp.Or(err, none)),
			"let kubexm reach its publisher, or a mirror (spec.source.mirrors) that has "+a.File+".sig and "+a.File+".cert beside it; for what you have built yourself set requireSignatures: false")
	}
	return proof{Unsigned: true}, nil
}

// proofAt reads the signature of a file at a place.
func (s *Store) proofAt(ctx context.Context, file source.Place, replaceable bool) (p proof, err error) {
	sig, cert := file, file
	sig.URL += ".sig"
	cert.URL += ".cert"
	if p.Signature, err = s.textAt(ctx, sig, replaceable); err == nil {
		p.Certificate, err = s.textAt(ctx, cert, replaceable)
	}
	p.Signature, p.Certificate = strings.TrimSpace(p.Signature), strings.TrimSpace(p.Certificate)
	return p, err
}
