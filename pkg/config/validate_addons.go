package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/plugin"
)

func (k *checker) checkStorage() {
	if k.Storage == nil || k.Storage.Default == "" || k.Storage.Default == v1alpha1.StorageNone {
		return
	}
	if !slices.ContainsFunc(plugin.StoragesOf(k.Spec), func(s plugin.Storage) bool { return s.Name == k.Storage.Default }) {
		k.fail("spec.storage.default", k.Storage.Default, "is not installed")
	}
}

func (k *checker) checkAddons() {
	met := map[string]bool{}
	for i, a := range k.Addons {
		at := fmt.Sprintf("spec.addons[%d]", i)
		k.label(at+".name", a.Name)
		k.label(at+".namespace", a.Namespace)
		if met[a.Name] {
			k.fail(at+".name", a.Name, "is the name of another addon")
		}
		met[a.Name] = true
		k.checkContent(at, a)
		if a.Timeout.Duration <= 0 {
			k.fail(at+".timeout", a.Timeout.Duration.String(), "must be more than 0s")
		}
	}
}

// checkContent checks that an addon has what its type needs, and nothing of the other.
func (k *checker) checkContent(at string, a v1alpha1.Addon) {
	manifests, chart := len(a.Files) > 0 || strings.TrimSpace(a.Inline) != "", a.Chart+a.Repository+a.Version != "" || a.ValuesFiles != nil || a.Values != nil
	switch {
	case a.Type == v1alpha1.AddonHelm && manifests:
		k.fail(at, a.Name, "has manifests, and is a chart: make two addons of it")
	case a.Type == v1alpha1.AddonHelm && a.Chart == "":
		k.fail(at+".chart", a.Chart, "is missing")
	case strings.HasPrefix(a.Chart, "oci://"):
		k.fail(at+".chart", "", "must be a name: give what stands before it as repository")
	case a.Repository == "" && a.Version != "":
		k.fail(at+".version", a.Version, "is only for charts of a repository: that of a file is in it")
	case a.Repository != "":
		k.checkRepository(at, a)
	case a.Type != v1alpha1.AddonHelm && chart:
		k.fail(at+".type", a.Type, "must be helm where there is a chart")
	case a.Type != v1alpha1.AddonHelm && !manifests:
		k.fail(at, a.Name, "has neither files nor inline")
	}
	for i, file := range a.Files {
		if strings.Contains(file, "://") {
			at := fmt.Sprintf("%s.files[%d]", at, i)
			k.checkURL(at, file, "https://example.com/manifests.yaml", "https")
			if strings.HasSuffix(file, "/") {
				k.fail(at, "", "must be the URL of a file, and no directory")
			}
		}
	}
	for i, image := range a.Images {
		if _, err := name.ParseReference(image); err != nil {
			k.fail(fmt.Sprintf("%s.images[%d]", at, i), image, "is no reference of an image")
		}
	}
}

// checkURL checks from where something is fetched.
func (k *checker) checkURL(path, value, like string, schemes ...string) {
	switch u, err := url.Parse(value); {
	case err != nil:
		k.fail(path, "", "must be a URL, like %s", like) // there may be a password in it
	case u.Host == "" || !slices.Contains(schemes, u.Scheme):
		k.fail(path, u.Redacted(), "must be a URL, like %s", like)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		k.fail(path, u.Redacted(), "must have neither a log-in nor a query: log-ins are in spec.source.access")
	}
}

var chartVersion = regexp.MustCompile(`^v?[0-9][0-9A-Za-z.+_-]*$`)

func (k *checker) checkRepository(at string, a v1alpha1.Addon) {
	k.checkURL(at+".repository", a.Repository, "https://charts.example.com or oci://registry.example.com/charts", "https", "http", "oci")
	if strings.ContainsAny(a.Chart, "/\\") {
		k.fail(at+".chart", a.Chart, "must be the chart's name in the repository")
	}
	if !chartVersion.MatchString(a.Version) {
		k.fail(at+".version", a.Version, "must be a version that the repository has, like 1.2.3, and no range")
	}
}
