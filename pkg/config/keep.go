package config

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// Kept is what a cluster itself keeps of the configuration that it was made with.
type Kept struct {
	Text    []byte   // as it is written, without secrets; comments are left out, too, as they may hold some
	Secrets []string // the fields that were left out, like spec.hosts[node1].password
	Kubexm  string   // the version of kubexm that has written it
}

// KeptSecret is the Secret in the namespace kube-system that holds it.
const KeptSecret = "kubexm-config" //nolint:gosec // its name, no password

// Keys of its data.
const (
	keyText    = "cluster.yaml"
	keyPacked  = "cluster.yaml.gz" // instead, where it is large
	keySecrets = "secrets"
	keyKubexm  = "kubexm"
)

// fits is how large a configuration may be there. The data of a Secret has 1 MiB at most (MaxSecretSize in pkg/apis/core/types.go of
// Kubernetes); a thousand hosts take a fifth of it.
const fits = 900 << 10

// Data is what the Secret holds. A configuration that does not even fit when it is compressed is left out.
func (k Kept) Data() map[string][]byte {
	data := map[string][]byte{keySecrets: []byte(strings.Join(k.Secrets, "\n")), keyKubexm: []byte(k.Kubexm)}
	if len(k.Text) <= fits {
		data[keyText] = k.Text
		return data
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(k.Text) // to memory
	if _ = z.Close(); b.Len() <= fits {
		data[keyPacked] = b.Bytes()
	}
	return data
}

// ReadKept reads what a Secret holds; Text is nil where it did not fit.
func ReadKept(data map[string][]byte) (k Kept, err error) {
	k = Kept{Text: data[keyText], Kubexm: string(data[keyKubexm])}
	if text := string(data[keySecrets]); text != "" {
		k.Secrets = strings.Split(text, "\n")
	}
	if packed, ok := data[keyPacked]; ok {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(packed)); err == nil {
			k.Text, err = io.ReadAll(io.LimitReader(z, maxSize))
		}
	}
	if err != nil {
		err = fmt.Errorf("reading the configuration in the Secret %s: %w", KeptSecret, err)
	}
	return k, err
}

// Keep returns what a cluster keeps of its configuration. What was left open stays open, but for versions that a cluster that runs
// cannot change: another kubexm has other defaults. It depends on what is written alone, not on its order, nor on this machine.
func Keep(c *v1alpha1.Cluster) (k Kept, err error) {
	written, _ := decode(c.Origin.Text)
	if written == nil {
		return k, fmt.Errorf("reading the configuration that is to be kept in the cluster: %s is no YAML document", c.Origin.File)
	}
	s := &written.Spec
	s.Kubernetes.Version, s.Etcd.Version = c.Spec.Kubernetes.Version, cmp.Or(s.Etcd.Version, c.Spec.Etcd.Version)
	visitFields(reflect.ValueOf(s).Elem(), "spec", func(path string, v reflect.Value, _ field) {
		if v.Type() == reflect.TypeFor[secret.Secret]() {
			k.Secrets = append(k.Secrets, path)
			v.SetZero()
		}
	})
	k.Text, err = Show(written)
	return k, err
}

// Outside lists what a configuration names and does not hold, which must be there where kubexm runs: a line for each, in the
// order of the documentation.
func Outside(text []byte) (all []string) {
	c, _ := decode(text)
	if c == nil {
		return nil
	}
	fetched := fetchedCharts(c.Spec.Addons)
	visitFields(reflect.ValueOf(&c.Spec).Elem(), "spec", func(path string, v reflect.Value, f field) {
		from, ok := v.Interface().(v1alpha1.SecretSource)
		switch {
		case ok && from.Env != "":
			all = append(all, path+": the environment variable "+from.Env)
		case ok && from.File != "":
			all = append(all, path+": the file "+from.File)
		case ok:
			all = append(all, path+": the command "+from.Exec)
		case fetched[path]:
		case f.file || f.name == "privateKeyPath" || f.name == "caFile":
			files := []string{v.String()}
			if list, several := v.Interface().([]string); several {
				files = list
			}
			for _, name := range files {
				if !strings.Contains(name, "://") {
					all = append(all, path+": the file "+name)
				}
			}
		}
	})
	return all
}

// visitFields visits the fields below v that are given, in the order of the documentation: secrets, their sources, and what is neither an object nor holds some.
func visitFields(v reflect.Value, path string, visit func(path string, v reflect.Value, f field)) {
	for _, f := range fieldsOf(v.Type()) {
		visitField(v.FieldByIndex(f.index), join(path, f.name), f, visit)
	}
}

func visitField(v reflect.Value, path string, f field, visit func(path string, v reflect.Value, f field)) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch {
	case !v.IsValid() || v.IsZero():
	case v.Type() == reflect.TypeFor[v1alpha1.SecretSource]():
		visit(path, v, f)
	case isObject(v.Type()):
		visitFields(v, path, visit)
	case v.Kind() == reflect.Slice && isObject(v.Type().Elem()):
		for i := range v.Len() {
			at := fmt.Sprintf("%s[%d]", path, i)
			if hasName(v.Type().Elem()) {
				at = fmt.Sprintf("%s[%s]", path, v.Index(i).FieldByName("Name"))
			}
			visitFields(v.Index(i), at, visit)
		}
	case v.Kind() == reflect.Map && isObject(element(v.Type())):
		for _, key := range slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) }) {
			item := reflect.New(v.Type().Elem()).Elem() // what is in a map cannot be set
			item.Set(v.MapIndex(key))
			visitFields(item, fmt.Sprintf("%s[%s]", path, key), visit)
			v.SetMapIndex(key, item)
		}
	default:
		visit(path, v, f)
	}
}

// fetchedCharts are the fields that name a chart in a repository, and no file.
func fetchedCharts(addons []v1alpha1.Addon) map[string]bool {
	all := map[string]bool{}
	for _, a := range addons {
		if _, known := plugin.KnownChart(a); known || a.Repository != "" {
			all["spec.addons["+a.Name+"].chart"] = true
		}
	}
	return all
}
