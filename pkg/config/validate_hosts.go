package config

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

func hostPath(i int) string { return fmt.Sprintf("spec.hosts[%d]", i) }

// label checks a DNS label (RFC 1123).
func (k *checker) label(path, value string) {
	if value != "" && len(validation.IsDNS1123Label(value)) > 0 {
		k.fail(path, value, "must be a DNS label: small letters, digits and -, at most 63")
	}
}

// interfaceName matches what machines call their network interfaces.
var interfaceName = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,15}$`)

// isIP reports whether a value is an IP address, with no other zone than an interface: it goes into files as it is.
func isIP(value string) bool {
	ip, err := netip.ParseAddr(value)
	return err == nil && (ip.Zone() == "" || interfaceName.MatchString(ip.Zone()))
}

// address checks an IP address or DNS name.
func (k *checker) address(path, value string) {
	if ip, err := netip.ParseAddr(value); err == nil && isIP(value) && ip.String() != value {
		k.lately(Error{Path: path, Value: value, Msg: notShortest, Suggestion: ip.String()})
	}
	if isIP(value) || value == "" {
		return
	}
	if len(validation.IsDNS1123Subdomain(value)) > 0 || looksNumeric.MatchString(value) {
		k.fail(path, value, "must be an IP address or a DNS name")
	}
}

func (k *checker) checkHosts() {
	type of struct{ kind, value string }
	seen := map[of]string{} // path of the first
	unique := func(kind, value, path, remedy string) bool {
		first, taken := seen[of{kind, value}]
		if taken && value != "" {
			k.fail(path, value, "the same as %s%s", first, remedy)
			return false
		}
		seen[of{kind, value}] = path
		return true
	}
	for i := range k.Hosts {
		h, path := &k.Hosts[i], hostPath(i)
		k.label(path+".name", h.Name)
		switch h.Name {
		case "control":
			k.fail(path+".name", h.Name, "is what plans and events call the machine that kubexm runs on; take another name")
		case "api":
			k.fail(path+".name", h.Name, "is what plans and events call the API of the cluster; take another name")
		case "archive", "certs", "lock", "objects", "runs":
			k.fail(path+".name", h.Name, "is a name of kubexm's own where the files of hosts are kept; take another name")
		}
		k.address(path+".address", h.Address)
		k.hostKey(path+".hostKey", h.HostKey)
		unique("name", h.Name, path+".name", "")
		// Several hosts may be behind one address (NAT), each with a port of its own.
		if unique(fmt.Sprint("port ", h.Port, " of"), h.Address, path+".address", ", on the same port") {
			remedy := ""
			if h.InternalAddress == h.Address {
				remedy = "; hosts behind one address each need an internalAddress, at which the others reach them"
			}
			for _, ip := range h.IPs() {
				unique("internal", ip, path+".internalAddress", remedy)
			}
		}
		if h.InternalAddress == "" && h.Address != "" {
			k.fail(path+".internalAddress", "", "required, as address is a name")
		}
		for _, text := range h.IPs() {
			if h.InternalAddress != "" {
				k.IP(path+".internalAddress", text)
			}
			if ip, err := netip.ParseAddr(text); err == nil && (ip.IsLoopback() || ip.IsUnspecified() || ip.IsMulticast()) {
				k.fail(path+".internalAddress", text, "must be an address that other hosts reach")
			}
		}
		for key, value := range h.Labels {
			at := fmt.Sprintf("%s.labels[%s]", path, key)
			k.valid(at, key, validation.IsQualifiedName(key))
			k.valid(at, value, validation.IsValidLabelValue(value))
		}
		for key := range h.Annotations {
			k.valid(fmt.Sprintf("%s.annotations[%s]", path, key), key, validation.IsQualifiedName(strings.ToLower(key)))
		}
		for j, t := range h.Taints {
			at := fmt.Sprintf("%s.taints[%d]", path, j)
			k.valid(at+".key", t.Key, validation.IsQualifiedName(t.Key))
			k.valid(at+".value", t.Value, validation.IsValidLabelValue(t.Value))
		}
	}
}

// valid reports the first message of an apimachinery check.
func (k *checker) valid(path, value string, msgs []string) {
	if len(msgs) > 0 && value != "" {
		short, _, _ := strings.Cut(msgs[0], " (e.g.")
		k.fail(path, value, "%s", short)
	}
}

func (k *checker) checkConnections() {
	k.connection("spec.global", k.Global, v1alpha1.Connection{})
	for i := range k.Hosts {
		k.connection(hostPath(i), k.Hosts[i].Connection, k.Global)
	}
}

// connection checks what c does not just inherit.
func (k *checker) connection(path string, c, inherited v1alpha1.Connection) {
	k.credentials(path, c.Credentials, inherited.Credentials)
	k.secret(path, "sudoPassword", !c.SudoPassword.IsZero(), c.SudoPasswordFrom, inherited.SudoPasswordFrom)
	if b := c.Bastion; b != nil && b != inherited.Bastion {
		k.address(path+".bastion.address", b.Address)
		k.hostKey(path+".bastion.hostKey", b.HostKey)
		k.credentials(path+".bastion", b.Credentials, c.Credentials)
	}
}

var sshFingerprint = regexp.MustCompile(`^SHA256:[A-Za-z0-9+/]{43}$`)

// hostKey checks a public key or a fingerprint.
func (k *checker) hostKey(path, value string) {
	words := strings.Fields(value)
	if value == "" || sshFingerprint.MatchString(value) || len(words) > 1 && isPublicKey(words[0], words[1]) {
		return
	}
	k.fail(path, value, "must be a public key, like ssh-ed25519 AAAA..., or its fingerprint, like SHA256:... (see kubexm hosts trust -o yaml, or ssh-keygen -lf on the machine)")
}

// isPublicKey reports whether a text is the encoding (RFC 4253, section 6.6) of a key of a type.
func isPublicKey(kind, text string) bool {
	key, err := base64.StdEncoding.DecodeString(text)
	begin := string(binary.BigEndian.AppendUint32(nil, uint32(len(kind)))) + kind
	return err == nil && strings.HasPrefix(string(key), begin) && len(key) > len(begin)
}

func (k *checker) credentials(path string, c, inherited v1alpha1.Credentials) {
	k.secret(path, "password", !c.Password.IsZero(), c.PasswordFrom, inherited.PasswordFrom)
	k.secret(path, "passphrase", !c.Passphrase.IsZero(), c.PassphraseFrom, inherited.PassphraseFrom)
	if c.PrivateKeyPath != "" && c.PrivateKeyPath != inherited.PrivateKeyPath {
		k.readable(path+".privateKeyPath", c.PrivateKeyPath)
	}
}

// secret checks the pair of a secret and its source.
func (k *checker) secret(path, name string, plain bool, from, inherited *v1alpha1.SecretSource) {
	if from == nil || from == inherited {
		return
	}
	at := path + "." + name + "From"
	if plain {
		k.fail(at, "", "%s is given, too; take one of them", name)
	}
	given := 0
	for _, s := range []string{from.Env, from.File, from.Exec} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		k.errs = append(k.errs, Error{Path: at, Msg: "exactly one source must be given", Allowed: []string{"env", "file", "exec"}})
	}
	if from.File != "" {
		k.readable(at+".file", expandHome(from.File))
	}
}

// readable checks that a file on the control machine can be read.
func (k *checker) readable(path, file string) bool {
	f, err := os.Open(file)
	if err != nil {
		var why *fs.PathError
		errors.As(err, &why)
		k.fail(path, file, "cannot be read: %v", why.Err)
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	regular := err != nil || info.Mode().IsRegular()
	if !regular {
		k.fail(path, file, "must be a file")
	}
	return regular
}
