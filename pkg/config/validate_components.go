package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	proxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	strictjson "sigs.k8s.io/json"
)

// checkTyped decodes what a user gives kubelets and kube-proxies as they do, but strictly: they take a field that they do not know
// for none at all.
func (k *checker) checkTyped() {
	k.typed("spec.kubernetes.kubelet.config", k.Kubernetes.Kubelet.Config, func() any { return new(kubeletv1beta1.KubeletConfiguration) })
	k.typed("spec.kubernetes.kubeProxy.config", k.Kubernetes.KubeProxy.Config, func() any { return new(proxyv1alpha1.KubeProxyConfiguration) })
}

// typed decodes each field for itself, so that errors say which one it is.
func (k *checker) typed(path string, given map[string]any, empty func() any) {
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if isOwn(path, key) {
			continue // which has been said
		}
		at := fmt.Sprintf("%s[%s]", path, key)
		text, err := json.Marshal(map[string]any{key: given[key]})
		if err != nil {
			k.fail(at, "", "%v", err)
			continue
		}
		into := empty()
		unknown, err := strictjson.UnmarshalStrict(text, into)
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			k.lately(Error{Path: at, Value: fmt.Sprint(given[key]), Msg: fmt.Sprintf("%s must be %s, not %s", strings.TrimPrefix(wrong.Field, key+"."), wording(wrong.Type), wrong.Value)})
		} else if err != nil {
			k.lately(Error{Path: at, Value: fmt.Sprint(given[key]), Msg: err.Error()})
		}
		for _, e := range unknown {
			k.unknownField(path, at, key, into, e)
		}
	}
}

// unknownField refuses a field that there is not; where Kubernetes is newer than what kubexm knows, it may be a new one.
func (k *checker) unknownField(path, at, key string, of any, why error) {
	if Minor(k.Kubernetes.Version) > Minor(newestKnown) {
		k.warn(at, "", "not known to Kubernetes %s, the newest whose fields kubexm knows: %v", newestKnown, why)
		return
	}
	e := Error{Path: at, Msg: why.Error()}
	if fields := jsonFields(reflect.TypeOf(of).Elem()); !slices.Contains(fields, key) {
		e.Msg = "there is no such field"
		if e.Suggestion = Nearest(key, fields); e.Suggestion == "" {
			e.Msg += "; see https://kubernetes.io/docs/reference/config-api/" + references[path]
		}
	}
	k.lately(e)
}

// newestKnown is the version of Kubernetes whose fields and flags are known.
const newestKnown = "v1.37.0"

// references are where fields are explained.
var references = map[string]string{
	"spec.kubernetes.kubelet.config":   "kubelet-config.v1beta1/",
	"spec.kubernetes.kubeProxy.config": "kube-proxy-config.v1alpha1/",
}

// jsonFields are the names of a struct's fields in JSON.
func jsonFields(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "" && name != "-":
			names = append(names, name)
		case strings.Contains(options, "inline"):
			names = append(names, jsonFields(f.Type)...)
		}
	}
	return names
}

// wording says in the words of YAML what a type takes.
func wording(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text, such as a name or a duration like 10s"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a map"
	case reflect.Pointer:
		return wording(t.Elem())
	}
	return "a " + t.String()
}
