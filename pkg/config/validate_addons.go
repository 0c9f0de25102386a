package config

import (
	"fmt"
	"slices"
	"strings"

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
		if len(a.Files) == 0 && strings.TrimSpace(a.Inline) == "" {
			k.fail(at, a.Name, "has neither files nor inline")
		}
		if a.Timeout.Duration <= 0 {
			k.fail(at+".timeout", a.Timeout.Duration.String(), "must be more than 0s")
		}
	}
}
