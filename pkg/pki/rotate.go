package pki

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Renewal says which leaf certificates are made anew although they would do. The zero value: none.
type Renewal struct {
	Before time.Time       // those that were made before
	Until  time.Time       // that end before; zero: whenever they end
	Of     func(Spec) bool // of these; nil: of all
}

// covers reports whether a certificate is to be made anew. A new one would end no later where that ends with its authority.
func (r Renewal) covers(spec Spec, have, issuer *x509.Certificate) bool {
	if !r.Until.IsZero() && (!have.NotAfter.Before(r.Until) || have.NotAfter.Equal(issuer.NotAfter)) {
		return false
	}
	return have.NotBefore.Add(backdate).Before(r.Before.Truncate(time.Second)) && (r.Of == nil || r.Of(spec))
}

// ServiceAccounts stands for the key of service-account tokens where authorities are rotated.
const ServiceAccounts CA = "service-accounts"

// Rotated are the authorities that can be rotated, each on its own or all at once.
func Rotated() []CA { return []CA{Kubernetes, Etcd, FrontProxy, ServiceAccounts, Registry} }

// Phase is how far the rotation of an authority is. Each is brought to all of the cluster before the next one begins.
type Phase int

// The phases of a rotation.
const (
	Steady  Phase = iota // nothing is being rotated
	Added                // its successor is trusted, too
	Swapped              // the successor signs; the former one is still trusted
)

func (p Phase) String() string { return [...]string{"steady", "add", "swap"}[p] }

// The files of a rotation: a successor is next.key and next.crt, a former authority former.key and former.crt. What has the successor's key, and is signed by
// the one before it, is cross.crt: with it, clients that only trust the former one believe servers that the successor has signed.
const (
	caName     = "ca"
	nextName   = "next"
	formerName = "former"
	crossFile  = "cross.crt"
)

// Phase tells how far the rotation of an authority is.
func (s *Store) Phase(ca CA) (Phase, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase(ca)
}

func (s *Store) phase(ca CA) (Phase, error) {
	dir, of := filesOf(ca)
	is, err1 := s.optional(s.path(dir, of.is+".key"))
	next, err2 := s.optional(s.path(dir, of.next+".key"))
	whole := ca == ServiceAccounts || s.exists(s.path(dir, of.next+".crt"))
	switch err := errors.Join(err1, err2); {
	case err != nil:
		return Steady, err
	case next != nil && whole && !bytes.Equal(is, next): // they are the same where a swap was cut off
		return Added, nil
	case s.exists(s.path(dir, of.former+".key")):
		return Swapped, nil
	}
	return Steady, nil
}

// files are the names of an authority's files, without their endings.
type files struct{ is, next, former string }

// filesOf is the directory in which an authority is kept, and under which names.
func filesOf(ca CA) (CA, files) {
	if ca == ServiceAccounts {
		return Kubernetes, files{"sa", "sa-next", "sa-former"}
	}
	return ca, files{caName, nextName, formerName}
}

// old is the name under which what is dropped is kept.
func (f files) old(at time.Time) string {
	return f.is + "-old-" + at.UTC().Format("20060102T150405Z")
}

// settle ends a swap that was cut off.
func (s *Store) settle(ca CA) error {
	dir, of := filesOf(ca)
	is, err1 := s.optional(s.path(dir, of.is+".key"))
	next, err2 := s.optional(s.path(dir, of.next+".key"))
	if err := errors.Join(err1, err2); err != nil || next == nil || !bytes.Equal(is, next) {
		return err
	}
	cert, err := s.optional(s.path(dir, of.next+".crt"))
	if cert != nil && err == nil {
		err = s.write(s.path(dir, of.is+".crt"), cert, "rotated")
	}
	return errors.Join(err, s.remove(s.path(dir, of.next+".crt")), s.remove(s.path(dir, of.next+".key")))
}

// optional reads a file; nil: there is none.
func (s *Store) optional(path string) ([]byte, error) {
	text, err := s.read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Add makes the successor of an authority, which is trusted from then on, too.
func (s *Store) Add(ca CA) error { return s.AddGiven(ca, nil) }

// AddGiven is Add with a successor of the user's; nil: a new one.
func (s *Store) AddGiven(ca CA, given *Pair) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.settle(ca); err != nil {
		return err
	}
	if ca == ServiceAccounts {
		_, _, err := s.key(Kubernetes, "sa-next", newServiceAccountKey)
		return err
	}
	old, err := s.existing(ca)
	if err != nil {
		return err
	}
	next := given
	if given == nil {
		if !s.exists(s.path(ca, nextName+".crt")) { // the key may be a given one, of a run that was cut off
			if err := s.remove(s.path(ca, nextName+".key")); err != nil {
				return err
			}
		}
		key, keyPEM, err := s.key(ca, nextName, newKey)
		if err != nil {
			return err
		}
		if next, err = s.selfSigned(ca, key, keyPEM); err != nil {
			return err
		}
	} else if err := cmp.Or(s.apart(given), s.write(s.path(ca, nextName+".key"), []byte(given.Key.Reveal()), "")); err != nil {
		return err
	}
	if bridges(old) {
		cross, err := s.crossSigned(ca, old, next)
		if err == nil {
			err = s.write(s.path(ca, crossFile), cross.Cert, "")
		}
		if err != nil {
			return err
		}
	}
	return s.write(s.path(ca, nextName+".crt"), next.Cert, "")
}

// bridges reports whether an authority may sign another one, which one of the user's may not be allowed to (pathLenConstraint).
func bridges(authority *Pair) bool { return authority.X509.MaxPathLen != 0 }

// Bridged reports whether who knows an authority alone believes what its successor signs. The authority has not been swapped yet.
func (s *Store) Bridged(ca CA) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ca == ServiceAccounts { // API servers verify tokens
		return true, nil
	}
	is, err := s.existing(ca)
	return err == nil && bridges(is), err
}

// crossSigned is a certificate of the key of an authority's successor that the authority itself has signed.
func (s *Store) crossSigned(ca CA, old, next *Pair) (*Pair, error) {
	template := s.authorityTemplate(ca)
	template.RawSubject, template.SubjectKeyId = next.X509.RawSubject, next.X509.SubjectKeyId
	if template.NotAfter.After(old.X509.NotAfter) {
		template.NotAfter = old.X509.NotAfter
	}
	return sign(template, old, next.signer, []byte(next.Key.Reveal()))
}

// Swap lets the successor of an authority sign. The former one is trusted as long as Drop has not ended that. Its files are written in an order in which each
// beginning is a state that loads: see existing.
func (s *Store) Swap(ca CA) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, of := filesOf(ca)
	for _, move := range [][2]string{{of.is, of.former}, {of.next, of.is}} {
		for _, end := range []string{".key", ".crt"} {
			text, err := s.optional(s.path(dir, move[0]+end))
			if err != nil {
				return err
			}
			if text == nil { // keys of service accounts have no certificates
				continue
			}
			if err := s.write(s.path(dir, move[1]+end), text, "rotated"); err != nil {
				return err
			}
		}
	}
	return errors.Join(s.remove(s.path(dir, of.next+".crt")), s.remove(s.path(dir, of.next+".key")))
}

// Drop ends the trust in a former authority. Its key and certificate are kept as old-DATE until somebody destroys them.
func (s *Store) Drop(ca CA) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.settle(ca); err != nil {
		return err
	}
	dir, of := filesOf(ca)
	old := of.old(s.now())
	for _, end := range []string{".key", ".crt"} {
		text, err := s.optional(s.path(dir, of.former+end))
		if err == nil && text != nil {
			err = s.write(s.path(dir, old+end), text, "")
		}
		if err != nil {
			return err
		}
	}
	gone := []error{s.remove(s.path(dir, of.former+".crt"))}
	if ca != ServiceAccounts {
		gone = append(gone, s.remove(s.path(ca, crossFile)))
	}
	return errors.Join(append(gone, s.remove(s.path(dir, of.former+".key")))...) // by which the phase is known
}

// Former is the certificate (PEM) of the authority that signed before the present one, and that is to be dropped; nil: there is none.
func (s *Store) Former(ca CA) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.optional(s.path(ca, formerName+".crt"))
}

// Heir is the authority that signs when its rotation has ended.
func (s *Store) Heir(ca CA) (*Pair, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.load(ca, nextName)
	if errors.Is(err, fs.ErrNotExist) {
		return s.existing(ca)
	}
	return next, err
}

// DroppedSince reports whether a former authority was dropped at a time or later.
func (s *Store) DroppedSince(ca CA, at time.Time) bool {
	dir, of := filesOf(ca)
	all, _ := fs.Glob(os.DirFS(s.path(dir, "")), of.is+"-old-*.key") // the only error is a bad pattern
	return len(all) > 0 && slices.Max(all) >= of.old(at)
}

// oldFile matches what Drop keeps.
var oldFile = regexp.MustCompile(`^(ca|sa)-old-\d{8}T\d{6}Z\.(key|crt)$`)

// Dropped lists the files that Drop has kept, of all authorities.
func (s *Store) Dropped() (all []string, err error) {
	err = filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && oldFile.MatchString(d.Name()) {
			all = append(all, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	return all, err
}

// AddedAt is when the successor of an authority was made.
func (s *Store) AddedAt(ca CA) (time.Time, error) {
	dir, of := filesOf(ca)
	return writtenAt(s.path(dir, of.next+".key"))
}

// SwappedAt is when the successor of an authority began to sign: whatever has started since trusts both.
func (s *Store) SwappedAt(ca CA) (time.Time, error) {
	dir, of := filesOf(ca)
	return writtenAt(s.path(dir, of.former+".key"))
}

func writtenAt(path string) (time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// cutSwap returns the successor where a swap was cut off when only its key was in place; nil: that is not so.
func (s *Store) cutSwap(ca CA, pair *Pair) *Pair {
	next, err := s.load(ca, nextName)
	if err != nil || next.Key.Reveal() != pair.Key.Reveal() {
		return nil
	}
	return next
}

// chained is a pair of a server with what lets clients believe it that only trust a former authority.
func (s *Store) chained(spec Spec, p *Pair) (*Pair, error) {
	if phase, err := s.phase(spec.CA); err != nil || phase != Swapped || !slices.Contains(spec.Usages, x509.ExtKeyUsageServerAuth) {
		return p, err
	}
	cross, err := s.optional(s.path(spec.CA, crossFile))
	if err != nil || cross == nil {
		return p, err
	}
	with := *p
	with.Cert = slices.Concat(p.Cert, cross)
	return &with, nil
}
