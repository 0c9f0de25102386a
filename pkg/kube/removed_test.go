package kube

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestRemovedAPIs keeps the table in step with k8s.io/api, and reads it.
func TestRemovedAPIs(t *testing.T) {
	var lines []string
	for api := range scheme.Scheme.AllKnownTypes() {
		in := removal(api)
		if in == 0 || strings.HasSuffix(api.Kind, "List") {
			continue
		}
		line := fmt.Sprintf("%s 1.%d", apiName(api), in)
		if instead := replacement(api); !instead.Empty() {
			line += " " + apiName(instead)
		}
		lines = append(lines, line+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int {
		return cmp.Or(cmp.Compare(minorOf(strings.Fields(a)[2]), minorOf(strings.Fields(b)[2])), strings.Compare(a, b))
	})
	golden.File(t, "removed.txt", strings.Join(lines, ""))

	removedText = strings.Join(lines, "")
	all := removedAPIs()
	if len(all) != len(lines) {
		t.Errorf("%d lines give %d APIs", len(lines), len(all))
	}
	for api, is := range all {
		if is.RemovedIn != removal(api) || is.Replacement != replacement(api) {
			t.Errorf("%s is read wrongly", is)
		}
	}
	v1beta1 := schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1beta1", Kind: "VolumeAttributesClass"}
	if got := all[v1beta1].String(); got != "storage.k8s.io/v1beta1 VolumeAttributesClass, removed in 1.37 for storage.k8s.io/v1 VolumeAttributesClass" {
		t.Error(got)
	}
}

// removal is the minor version in which an API is removed; 0: none.
func removal(api schema.GroupVersionKind) int {
	goes, ok := reflect.New(scheme.Scheme.AllKnownTypes()[api]).Interface().(interface{ APILifecycleRemoved() (int, int) })
	if !ok {
		return 0
	}
	_, minor := goes.APILifecycleRemoved()
	return minor
}

// replacement is what the type of an API names, or else the most mature version of the kind, if that stays longer.
func replacement(api schema.GroupVersionKind) schema.GroupVersionKind {
	if named, ok := reflect.New(scheme.Scheme.AllKnownTypes()[api]).Interface().(interface {
		APILifecycleReplacement() schema.GroupVersionKind
	}); ok {
		return named.APILifecycleReplacement()
	}
	best := api
	for _, gv := range scheme.Scheme.VersionsForGroupKind(api.GroupKind()) {
		if version.CompareKubeAwareVersionStrings(gv.Version, best.Version) > 0 {
			best = gv.WithKind(api.Kind)
		}
	}
	if in := removal(best); in != 0 && in <= removal(api) {
		return schema.GroupVersionKind{}
	}
	return best
}
