package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// Release is what of a cluster goes through versions one after the other. Both are written with a v.
type Release struct {
	Kubernetes string `json:"kubernetes"`
	Etcd       string `json:"etcd,omitempty"` // empty: kubexm runs none
}

func (r Release) String() string {
	if r.Etcd == "" {
		return "Kubernetes " + r.Kubernetes
	}
	return "Kubernetes " + r.Kubernetes + ", etcd " + r.Etcd
}

// ReleaseOf is the release of a configuration with its defaults.
func ReleaseOf(s *v1alpha1.Spec) Release { return Release{s.Kubernetes.Version, s.Etcd.Version} }

// Stay lets a configuration that says nothing of the version of Kubernetes have the one that its cluster has: the default is for new clusters. It
// reports whether that is another one than the default.
func Stay(c *v1alpha1.Cluster, has Release) bool {
	s := &c.Spec
	if c.Origin.Lines["spec.kubernetes.version"] > 0 || has.Kubernetes == "" || s.Kubernetes.Version == has.Kubernetes {
		return false
	}
	s.Kubernetes.Version = has.Kubernetes
	if c.Origin.Lines["spec.etcd.version"] == 0 && s.Etcd.Type != v1alpha1.TypeExternal {
		s.Etcd.Version = newer(has.Etcd, EtcdFor(s, s.Kubernetes.Version))
	}
	return true
}

// nextEtcd is the oldest patch release of a minor version of etcd, by its number, from which the next minor version may begin.
//
// Facts: https://etcd.io/docs/v3.7/upgrades, upgrade_3_6.md and upgrade_3_7.md.
var nextEtcd = map[int]string{5: "v3.5.32", 6: "v3.6.11"}

// Path is how a cluster gets from one release to another: the releases that it has on the way, the last one included. Both are
// brought one minor version forward at a time, and an etcd that is too old for its next minor version is brought to a newer patch release
// before. Without a difference there is no path.
func Path(was, is Release) (path []Release) {
	at := was
	step := func(kubernetes, etcd string) {
		if next := (Release{kubernetes, etcd}); next != at {
			path, at = append(path, next), next
		}
	}
	for _, k := range minorsTo(was.Kubernetes, is.Kubernetes) {
		wanted := is.Etcd
		if k != is.Kubernetes && wanted != "" { // on the way: no newer one than in the end
			wanted = Older(is.Etcd, newer(at.Etcd, VersionsFor(k).Etcd))
		}
		for Minor(at.Etcd) < Minor(wanted) {
			if from := nextEtcd[Minor(at.Etcd)]; from != "" && !atLeast(at.Etcd, from) {
				step(at.Kubernetes, newest(Minor(at.Etcd), from))
			}
			if Minor(at.Etcd)+1 == Minor(wanted) {
				break
			}
			step(at.Kubernetes, newest(Minor(at.Etcd)+1, "v3."+fmt.Sprint(Minor(at.Etcd)+1)+".0"))
		}
		step(k, wanted)
	}
	step(is.Kubernetes, is.Etcd)
	return path
}

// minorsTo are the versions of Kubernetes on the way to one, that one included: of each minor version in between the newest that is known; those of which none
// is are left out.
func minorsTo(was, is string) (all []string) {
	for _, v := range versions {
		if m := Minor(v.Kubernetes); Minor(was) < m && m < Minor(is) {
			all = append(all, v.Kubernetes)
		}
	}
	return append(all, is)
}

// newest is the newest known etcd of a minor version; none is older than a given one.
func newest(of int, least string) string {
	for _, v := range slices.Backward(versions) {
		if Minor(v.Etcd) == of && atLeast(v.Etcd, least) {
			return v.Etcd
		}
	}
	return least
}

func newer(a, b string) string {
	if atLeast(a, b) {
		return a
	}
	return b
}

// share matches a number of nodes, or a share of them.
var share = regexp.MustCompile(`^([1-9][0-9]{0,5}|([1-9][0-9]?|100)%)$`)

func (k *checker) checkUpgrade() {
	u := k.Upgrade
	if !share.MatchString(u.MaxUnavailable) {
		k.fail("spec.upgrade.maxUnavailable", u.MaxUnavailable, "must be a number of nodes, or a share of them, from 1%% to 100%%")
	}
	if t := u.Pause.Duration; t < 0 || t > 7*24*time.Hour {
		k.fail("spec.upgrade.pause", t, "must be from 0s to 168h")
	}
	if t := u.Drain.Timeout.Duration; t < time.Second || t > 24*time.Hour {
		k.fail("spec.upgrade.drain.timeout", t, "must be from 1s to 24h")
	}
	k.checkHooks("spec.hooks.beforeNode", k.Hooks.BeforeNode)
	k.checkHooks("spec.hooks.afterNode", k.Hooks.AfterNode)
}

func (k *checker) checkHooks(path string, hooks []v1alpha1.Hook) {
	for i, h := range hooks {
		at := fmt.Sprintf("%s[%d]", path, i)
		if strings.TrimSpace(h.Name) == "" {
			k.fail(at+".name", h.Name, "must be given: messages call it so")
		}
		if strings.TrimSpace(h.Command) == "" {
			k.fail(at+".command", h.Command, "must be given")
		}
		if t := h.Timeout.Duration; t < time.Second || t > 24*time.Hour {
			k.fail(at+".timeout", t, "must be from 1s to 24h")
		}
	}
}

// Same reports whether two versions are the same release, with or without a v, and whatever they say of their build.
func Same(a, b string) bool {
	x, err1 := version.ParseGeneric(a)
	y, err2 := version.ParseGeneric(b)
	return err1 == nil && err2 == nil && slices.Equal(x.Components(), y.Components())
}

// Older is the older of two versions, of which one that is empty is none.
func Older(a, b string) string {
	if b == "" || a != "" && atLeast(b, a) {
		return a
	}
	return b
}

// byValue is the policy on changes from or to some values, of versions and of what leads to Services.
func byValue(field, was, is string) (p Policy, ok bool) {
	back := Minor(was) - Minor(is)
	switch {
	case field == "spec.kubernetes.version" && back > 1:
		return Policy{
			Way: Refuse, Why: "an API server reads what the next newer minor version has written, and nothing newer",
			WayOut: fmt.Sprintf("go back by one minor version, to v1.%d, or restore a snapshot of etcd from before", Minor(was)-1),
		}, true
	case field == "spec.kubernetes.proxyMode" && (was == v1alpha1.ProxyNone) != (is == v1alpha1.ProxyNone):
		return Policy{Way: Refuse, Why: "Services would lead nowhere between kube-proxy and the network plugin", WayOut: "make a new cluster"}, true
	case field == "spec.etcd.version" && back > 1:
		return Policy{Way: Refuse, Why: "members of etcd do not read the data of a newer minor version", WayOut: "write spec.etcd.version: " + was}, true
	}
	return Policy{}, false
}
