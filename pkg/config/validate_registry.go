package config

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/plugin"
)

// SplitRegistry returns the DNS name and the port of a registry's name; the port is 443 where
// none is given, and 0 where it is no number of a port.
func SplitRegistry(name string) (domain string, port int) {
	domain, text, given := strings.Cut(name, ":")
	if !given {
		return domain, 443
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return domain, 0
	}
	return domain, int(n)
}

// longestPassword of the private registry, in bytes: bcrypt's limit.
const longestPassword = 72

// badPassword says what is wrong with a password of the private registry; empty: nothing.
func badPassword(s *v1alpha1.Spec, password string) string {
	kind := plugin.RegistryOf(s)
	switch {
	case len(password) > longestPassword:
		return fmt.Sprintf("more than the %d bytes that a password may have", longestPassword)
	case kind.Letters != "" && !regexp.MustCompile("^[A-Za-z0-9"+kind.Letters+"]*$").MatchString(password):
		return "characters other than letters, digits and " + kind.Letters + ", which " + kind.Title + "'s installer cannot write"
	}
	return ""
}

func authPath(name string) string { return "spec.registry.auth[" + name + "]" }

// checkRegistry checks the private registry, and how nodes reach others.
func (k *checker) checkRegistry() {
	hosts := hostsWith(k.Spec, v1alpha1.RoleRegistry)
	if len(hosts) > 1 {
		k.fail(k.rolePath(v1alpha1.RoleRegistry), hosts[1], "%s has the role registry already; images are pushed to one host", hosts[0])
	}
	if k.Registry == nil {
		return
	}
	private := ""
	if len(hosts) > 0 {
		private = k.Registry.PrivateRegistry
		k.checkPrivateRegistry(hosts[0])
		k.checkRegistryKind(plugin.RegistryOf(k.Spec), hosts[0])
	} else {
		for field, value := range map[string]string{
			"type": k.Registry.Type, "privateRegistry": k.Registry.PrivateRegistry, "dataDir": k.Registry.DataDir,
		} {
			if value != "" {
				k.fail("spec.registry."+field, value, "is for the registry that kubexm runs, and no host has the role registry; "+
					"set how nodes reach other registries in mirrors, auth and insecure")
			}
		}
	}
	for name, a := range k.Registry.Auth {
		k.checkRegistryAuth(name, a, name == private)
	}
	for name, mirrors := range k.Registry.Mirrors {
		k.checkMirrors(name, mirrors, private)
	}
	for i, name := range k.Registry.Insecure {
		at := fmt.Sprintf("spec.registry.insecure[%d]", i)
		k.registryHost(at, name)
		if name == private {
			k.fail(at, name, "is the private registry: nodes know the authority of its certificate")
		}
	}
}

func (k *checker) isNode(host string) bool {
	return slices.Contains(k.masters, host) || slices.Contains(hostsWith(k.Spec, v1alpha1.RoleWorker), host)
}

func (k *checker) checkPrivateRegistry(host string) {
	const at = "spec.registry.privateRegistry"
	name := k.Registry.PrivateRegistry
	domain, port := SplitRegistry(name)
	switch {
	case len(validation.IsDNS1123Subdomain(domain)) > 0 || looksNumeric.MatchString(domain) || !strings.Contains(domain, "."):
		k.fail(at, name, "must be a DNS name with a dot in it, optionally with :port, like registry.kubexm.local")
	case port == 0:
		k.fail(at, name, "has no port between 1 and 65535 after the colon")
	case slices.Contains(takenPorts, port) || k.isNode(host) && port == k.LoadBalancer.Port:
		k.fail(at, name, "port %d is used on hosts by sshd, etcd or Kubernetes itself; take another, like 5000", port)
	case domain == k.LoadBalancer.Domain:
		k.fail(at, name, "is the name of the API server (spec.loadBalancer.domain)")
	}
	for i, e := range k.Extra.Hosts {
		if e.Domain == domain {
			k.fail(fmt.Sprintf("spec.extra.hosts[%d].domain", i), e.Domain, "is set by kubexm itself")
		}
	}
	for _, taken := range k.Hosts {
		if domain == taken.Name {
			k.fail(at, name, "is the name of a host")
		}
	}
}

// checkRegistryKind checks what one kind of registry asks for.
func (k *checker) checkRegistryKind(kind plugin.Registry, host string) {
	r := k.Registry
	if _, port := SplitRegistry(r.PrivateRegistry); slices.Contains(kind.Ports, port) {
		k.fail("spec.registry.privateRegistry", r.PrivateRegistry, "port %d is used by %s itself; take another, like 5000", port, kind.Title)
	}
	if port := k.LoadBalancer.Port; k.isNode(host) && slices.Contains(kind.Ports, port) {
		k.fail("spec.loadBalancer.port", port, "is used by %s itself, on %s; take another, like 6443", kind.Title, host)
	}
	if user := r.Auth[r.PrivateRegistry].Username; user != "" && kind.User != "" && user != kind.User {
		k.fail(authPath(r.PrivateRegistry)+".username", user, "must be %s: %s has no other user when it starts", kind.User, kind.Title)
	}
	if kind.Docker && k.isNode(host) {
		k.fail(k.rolePath(v1alpha1.RoleRegistry), host, "is a node: %[1]s needs Docker, whose %[2]s and that of a node want the same socket and directory; "+
			"give %[1]s a host that is neither master nor worker, or take type registry", kind.Title, plugin.RuntimeOf(k.Spec).Name)
	}
	for i, h := range k.Hosts {
		if h.Name == host && h.Arch == "arm64" && kind.AMD64() {
			k.fail(hostPath(i)+".arch", h.Arch, "%s is published for amd64 alone; take another host, or type registry", kind.Title)
		}
	}
}

func (k *checker) checkRegistryAuth(name string, a v1alpha1.RegistryAuth, private bool) {
	at := authPath(name)
	k.registryHost(at, name)
	k.secret(at, "password", !a.Password.IsZero(), a.PasswordFrom, nil)
	given := !a.Password.IsZero() || a.PasswordFrom != nil
	switch {
	case given != (a.Username != ""):
		k.fail(at, name, "a login is a username with password or passwordFrom")
	case strings.ContainsAny(a.Username, ":\n\r"):
		k.fail(at+".username", a.Username, "must have neither a colon nor a line break in it")
	case private && badPassword(k.Spec, a.Password.Reveal()) != "":
		k.fail(at+".password", "", "has %s", badPassword(k.Spec, a.Password.Reveal()))
	}
	switch {
	case a.CAFile == "":
		if a.Username == "" {
			k.fail(at, name, "is empty: give username and password, or caFile")
		}
	case private:
		k.fail(at+".caFile", a.CAFile, "is for other registries: kubexm makes the certificate of the private one")
	case k.readable(at+".caFile", a.CAFile):
		text, err := os.ReadFile(a.CAFile)
		if err != nil || !x509.NewCertPool().AppendCertsFromPEM(text) {
			k.fail(at+".caFile", a.CAFile, "holds no certificate (PEM)")
		}
	}
}

func (k *checker) checkMirrors(name string, mirrors []string, private string) {
	at := "spec.registry.mirrors[" + name + "]"
	k.registryHost(at, name)
	if name == private {
		k.fail(at, name, "is the private registry, which has no mirrors")
	}
	for i, m := range mirrors {
		u, err := url.Parse(m)
		if err != nil || !isURL(m) || !registryForm.MatchString(u.Host) || u.RawQuery != "" || u.Fragment != "" || u.User != nil || !mirrorPath.MatchString(u.Path) {
			k.fail(fmt.Sprintf("%s[%d]", at, i), "", "must be a URL like https://mirror.example.com:5000/path; a login belongs in auth")
		}
	}
}

// mirrorPath is where the images of a mirror begin: a part of repository names.
var mirrorPath = regexp.MustCompile(`^(/[a-z0-9]+([._-]+[a-z0-9]+)*)*/?$`)

// registryForm is what images are named after, and what containerd's directories are.
var registryForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:\d{1,5})?$`)

func (k *checker) registryHost(at, name string) {
	if _, port := SplitRegistry(name); port == 0 || !registryForm.MatchString(name) {
		k.fail(at, name, "must be the name of a registry, optionally with :port, like registry.example.com:5000")
	}
}
