package config

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/util/human"
)

func isVersion(v string) bool {
	_, err := version.ParseSemantic(v)
	return err == nil
}

func (k *checker) checkVersions() {
	now := VersionsFor(k.Kubernetes.Version)
	var kubernetes, etcd []string
	for _, v := range versions {
		kubernetes, etcd = append(kubernetes, v.Kubernetes), append(etcd, v.Etcd)
	}
	k.version("spec.kubernetes.version", k.Kubernetes.Version, now.Kubernetes, kubernetes...)
	k.version("spec.etcd.version", k.Etcd.Version, now.Etcd, etcd...)
	for _, p := range plugin.All() {
		if v := p.Version.In(k.Spec); v != nil {
			k.version(p.Version.Path, *v, p.Parts[0].Version, p.Parts[0].Version)
		}
	}
	k.checkMinor(now)
}

// version checks a version, which may have been meant to be one of those that are known.
func (k *checker) version(path, value, example string, known ...string) {
	if value == "" || isVersion(value) {
		return
	}
	e := Error{Path: path, Value: value, Msg: "must be a full version like " + example}
	for _, v := range known {
		if strings.HasPrefix(v, strings.TrimSuffix(value, ".x")+".") {
			e.Suggestion = v
		}
	}
	k.errs = append(k.errs, e)
}

// checkMinor checks that the Kubernetes version is one that kubexm can install.
func (k *checker) checkMinor(now Versions) {
	const path = "spec.kubernetes.version"
	p, err := version.ParseSemantic(k.Kubernetes.Version)
	oldest := versions[0].Kubernetes
	switch {
	case err != nil:
	case p.Major() != 1:
		k.fail(path, k.Kubernetes.Version, "there is no such Kubernetes version; the newest known is %s", DefaultKubernetes())
	case int(p.Minor()) < Minor(oldest):
		k.errs = append(k.errs, Error{
			Path: path, Value: k.Kubernetes.Version,
			Msg: fmt.Sprintf("too old; 1.%d and newer are supported", Minor(oldest)), Suggestion: oldest,
		})
	case int(p.Minor()) != Minor(now.Kubernetes) || !now.Tested:
		k.warn(path, k.Kubernetes.Version, "not tested with this kubexm; tested: %s", strings.Join(testedMinors(), ", "))
	case p.PreRelease() != "":
		k.warn(path, k.Kubernetes.Version, "is a pre-release, which is not for production; the newest known release is %s", now.Kubernetes)
	case version.MustParseSemantic(now.Kubernetes).LessThan(p):
		k.warn(path, k.Kubernetes.Version, "is newer than %s, the newest of its minor that this kubexm knows", now.Kubernetes)
	}
}

func testedMinors() []string {
	var all []string
	for _, v := range versions {
		if v.Tested {
			all = append(all, fmt.Sprintf("1.%d", Minor(v.Kubernetes)))
		}
	}
	return all
}

func (k *checker) checkKubernetes() {
	const at = "spec.kubernetes"
	k.domain(at+".dnsDomain", k.Kubernetes.DNSDomain)
	for i, san := range k.Kubernetes.APIServer.CertSANs {
		wildcard := strings.HasPrefix(san, "*.") && len(validation.IsWildcardDNS1123Subdomain(san)) == 0
		if !wildcard {
			k.address(fmt.Sprintf("%s.apiServer.certSANs[%d]", at, i), san)
		}
	}
	k.checkVolumes(at+".apiServer.extraVolumes", k.Kubernetes.APIServer.ExtraVolumes)
	k.checkVolumes(at+".controllerManager.extraVolumes", k.Kubernetes.ControllerManager.ExtraVolumes)
	k.checkVolumes(at+".scheduler.extraVolumes", k.Kubernetes.Scheduler.ExtraVolumes)
}

// checkVolumes checks what the static pod of a program is to see.
func (k *checker) checkVolumes(path string, all []v1alpha1.Volume) {
	names := map[string]bool{}
	for i, v := range all {
		p := fmt.Sprintf("%s[%d]", path, i)
		k.label(p+".name", v.Name)
		if names[v.Name] {
			k.fail(p+".name", v.Name, "given twice")
		}
		names[v.Name] = true
		k.absolute(p+".hostPath", v.HostPath)
		k.absolute(p+".mountPath", v.MountPath)
		if k.Kubernetes.Type == v1alpha1.TypeKubexm {
			k.fail(p, v.Name, "only with kubernetes.type kubeadm: without a pod the program sees the host's files")
		}
	}
}

var featureGate = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// plainPath matches what stands for itself in scripts, units, TOML and YAML, and in lists of mounts.
var plainPath = regexp.MustCompile(`^/[\p{L}\p{N}._/@+~=-]+$`)

// absolute checks a path on the hosts.
func (k *checker) absolute(at, value string) bool {
	ok := value == "" || plainPath.MatchString(value) && path.Clean(value) == value
	if !ok {
		k.fail(at, value, "must be an absolute path of letters, digits and ._@+~=-, without .. and trailing /")
	}
	return ok
}

// shared are directories that others use. Nothing below those of which it is true
// is free, either.
var shared = map[string]bool{
	"/bin": true, "/boot": true, "/dev": true, "/etc": true, "/lib": true, "/lib64": true, "/proc": true, "/run": true, "/sbin": true,
	"/sys": true, "/usr": true, "/var/run": true, "/var/lib/kubelet": true, "/var/lib/kubexm": true, "/opt/cni": true, "/var/lib/cni": true,
	"/var/lib/kube-proxy": true, "/var/lib/dpkg": true, "/var/lib/rpm": true, "/var/lib/apt": true, "/var/lib/systemd": true,
	"/home": false, "/media": false, "/mnt": false, "/opt": false, "/root": false, "/srv": false, "/tmp": false,
	"/var": false, "/var/lib": false, "/var/log": false, "/var/cache": false, "/var/tmp": false, "/var/spool": false,
	"/var/backups": false, "/var/log/pods": false, "/var/log/containers": false,
}

// checkData checks the directories that deleting the cluster empties.
func (k *checker) checkData() {
	type data struct{ at, dir, of string }
	all := []data{
		{"spec.etcd.dataDir", k.Etcd.DataDir, "etcd"},
		{"spec.runtime.dataRoot", k.Runtime.DataRoot, "the runtime"},
	}
	if k.Registry != nil {
		all = append([]data{{"spec.registry.dataDir", k.Registry.DataDir, "the registry"}}, all...)
	}
	for _, s := range plugin.StoragesOf(k.Spec) {
		all = append([]data{{s.Section.Path + ".path", s.Dir(k.Spec), "volumes"}}, all...)
	}
	all = slices.DeleteFunc(all, func(d data) bool { return d.dir == "" || !k.absolute(d.at, d.dir) || !k.free(d.at, d.dir) })
	for i, one := range all {
		for _, other := range all[i+1:] {
			if within(one.dir, other.dir) || within(other.dir, one.dir) {
				k.fail(one.at, one.dir, "must be apart from the directory of %s, %s (%s)", other.of, other.dir, other.at)
			}
		}
	}
}

// free checks that nobody else uses a directory on the hosts.
func (k *checker) free(at, dir string) bool {
	for _, other := range slices.Sorted(maps.Keys(shared)) {
		if within(other, dir) || shared[other] && within(dir, other) {
			k.fail(at, dir, "deleting the cluster empties this directory, and others use %s; take one of its own, like /data/kubexm", other)
			return false
		}
	}
	return true
}

// within reports whether dir is another directory or lies in it.
func within(dir, other string) bool {
	return path.IsAbs(dir) && (dir == other || strings.HasPrefix(dir, strings.TrimSuffix(other, "/")+"/"))
}

var (
	sysctlKey   = regexp.MustCompile(`^[a-z0-9_-]+([./][A-Za-z0-9_-]+)+$`)
	moduleName  = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	packageName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.+_:~-]*[A-Za-z0-9.+_:~])?$`) // apt removes what ends with -
)

// needed are kernel parameters that Kubernetes requires to be 1; the last is another name of the first.
var needed = []string{"net.ipv4.ip_forward", "net.bridge.bridge-nf-call-iptables", "net.ipv4.conf.all.forwarding"}

// checkKernel checks what hosts get that are nodes.
func (k *checker) checkKernel() {
	var others []string
	for _, h := range k.Hosts {
		if !k.isNode(h.Name) {
			others = append(others, h.Name)
		}
	}
	for field, given := range map[string]int{"sysctl": len(k.System.Sysctl), "modules": len(k.System.Modules)} {
		if given > 0 && others != nil {
			k.warn("spec.system."+field, "", "is for nodes; left alone on %s", human.Names(others, 5))
		}
	}
	for key, value := range k.System.Sysctl {
		at := fmt.Sprintf("spec.system.sysctl[%s]", key)
		if !sysctlKey.MatchString(key) {
			k.fail(at, key, "is not the name of a kernel parameter, like net.core.somaxconn")
		}
		if value == "" || strings.ContainsAny(value, "\n\r") {
			k.fail(at, value, "must be a value of one line")
		}
		if slices.Contains(needed, strings.ReplaceAll(key, "/", ".")) && strings.TrimSpace(value) != "1" {
			k.fail(at, value, "must be 1, or left out: without it pods and services have no network")
		}
	}
}

func (k *checker) checkSystem() {
	k.checkKernel()
	for _, l := range []struct {
		name, what string
		values     []string
		form       *regexp.Regexp
	}{
		{"modules", "kernel module", k.System.Modules, moduleName},
		{"rpms", "package", k.System.RPMs, packageName},
		{"debs", "package", k.System.Debs, packageName},
	} {
		for i, v := range l.values {
			if !l.form.MatchString(v) {
				k.fail(fmt.Sprintf("spec.system.%s[%d]", l.name, i), v, "is not the name of a %s", l.what)
			}
		}
	}
	first := map[string]string{}
	for i, h := range k.Extra.Hosts {
		at := fmt.Sprintf("spec.extra.hosts[%d]", i)
		k.domain(at+".domain", h.Domain)
		if first[h.Domain] != "" {
			k.fail(at+".domain", h.Domain, "the same as %s", first[h.Domain])
		} else {
			first[h.Domain] = at + ".domain"
		}
		k.IP(at+".address", h.Address)
		if slices.ContainsFunc(k.Hosts, func(n v1alpha1.Host) bool { return n.Name == h.Domain }) || h.Domain == k.LoadBalancer.Domain {
			k.fail(at+".domain", h.Domain, "is set by kubexm itself")
		}
	}
}

func (k *checker) checkSource() {
	if zone := k.Source.Zone; zone != "" && zone != "cn" {
		k.errs = append(k.errs, Error{Path: "spec.source.zone", Value: zone, Msg: "unknown value (of KXZONE)", Allowed: []string{"cn"}})
	}
	for from, to := range k.Source.Mirrors {
		at := fmt.Sprintf("spec.source.mirrors[%s]", from)
		if isURL(from) && !isURL(to) {
			k.fail(at, "", "must be a URL, as the address that it replaces is one")
		}
		for _, s := range []string{from, to} {
			if u, err := url.Parse(s); strings.Contains(s, "://") && (err != nil || !isURL(s) || u.Host == "") || !isURL(s) && !registryName.MatchString(s) {
				k.fail(at, "", "must be a URL prefix (https://host/path) or a registry (host[:port][/path])")
			}
		}
		u, err := url.Parse(to)
		if err == nil && u.Scheme == "http" && !strings.HasPrefix(from, "http://") && !isLoopback(u.Hostname()) && !k.Source.Insecure {
			k.lately(Error{Path: at, Msg: "is not protected by TLS: whoever is on the way can replace what is downloaded; use https, or, if all networks on the way are yours, set spec.source.insecure: true"})
		}
		if err == nil && u.User != nil {
			if _, has := u.User.Password(); has {
				k.warn(at, "", "a password in a URL is shown wherever the configuration is; give it in spec.source.access")
			}
		}
	}
	k.checkAccess()
}

func (k *checker) checkAccess() {
	seen := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(k.Source.Access)) {
		a, at := k.Source.Access[key], accessPath(key)
		if strings.Contains(key, "@") { // the path would show it
			k.fail("spec.source.access", "", "the URL must not contain the login: give username and passwordFrom")
			continue
		}
		if u, err := url.Parse(key); !isURL(key) && !registryName.MatchString(key) || isURL(key) && (err != nil || u.Host == "" || u.RawQuery != "") {
			k.fail(at, "", "must be a URL prefix (https://host/path) or a registry (host[:port][/path])")
		}
		same := strings.TrimRight(strings.TrimPrefix(key, "https://"), "/")
		if seen[same] != "" {
			k.fail(at, "", "the same as %s", accessPath(seen[same]))
		}
		seen[same] = key
		k.secret(at, "password", !a.Password.IsZero(), a.PasswordFrom, nil)
		if given := !a.Password.IsZero() || a.PasswordFrom != nil; given != (a.Username != "") {
			k.fail(at, "", "username needs password or passwordFrom")
		}
		if a.CAFile != "" && !k.Source.Offline {
			k.readable(at+".caFile", a.CAFile)
		}
		k.secret(at, "proxy", a.Proxy != "", a.ProxyFrom, nil)
		if p, err := url.Parse(a.Proxy); a.Proxy != "" && a.Proxy != "direct" && (err != nil || !isURL(a.Proxy) || p.Host == "" || p.User != nil) {
			k.fail(at+".proxy", "", "must be a URL without a login (http://host:port), or direct; give a URL with a login in proxyFrom")
		}
	}
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func accessPath(key string) string { return "spec.source.access[" + key + "]" }

var registryName = regexp.MustCompile(`^[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._/-]+)?$`)

func isURL(s string) bool { return strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") }
