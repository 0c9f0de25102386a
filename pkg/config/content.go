package config

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// Resolved is Show for the record of what a cluster was made with: with a digest of every secret that the cluster
// gets, and of the content of every file that the configuration names. They are keyed, for a password is found by
// trying where its plain digest is known; without a key there are none. Secrets must have been read by ResolveSecrets.
func Resolved(c *v1alpha1.Cluster, key []byte) ([]byte, error) {
	shown, err := Show(c)
	if err != nil || key == nil {
		return shown, err
	}
	d := &digester{key: key, all: map[string]string{}, fetched: fetchedCharts(c.Spec.Addons)}
	d.fields(reflect.ValueOf(c.Spec), "spec", Policy{})
	if d.err != nil {
		return nil, d.err
	}
	contents, err := yaml.Marshal(map[string]map[string]string{"contents": d.all})
	return append(shown, contents...), err
}

type digester struct {
	key []byte
	all map[string]string // by field
	err error

	fetched map[string]bool // fields that name no file
}

func (d *digester) fields(v reflect.Value, path string, outer Policy) {
	for _, f := range fieldsOf(v.Type()) {
		if p := f.policy.or(outer); p.Way != None {
			d.value(v.FieldByIndex(f.index), join(path, f.name), f, p)
		}
	}
}

func (d *digester) value(v reflect.Value, path string, f field, p Policy) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch {
	case !v.IsValid() || v.IsZero():
	case v.Type() == reflect.TypeFor[secret.Secret]():
		s, _ := v.Interface().(secret.Secret)
		d.add(path, []byte(s.Reveal()))
	case f.file && !d.fetched[path]:
		content, err := contentOf(v)
		if d.err = errors.Join(d.err, err); content != nil {
			d.add(path, content)
		}
	case isObject(v.Type()):
		d.fields(v, path, p)
	case v.Kind() == reflect.Slice && hasName(v.Type().Elem()):
		for i := range v.Len() {
			d.value(v.Index(i), fmt.Sprintf("%s[%s]", path, v.Index(i).FieldByName("Name")), field{}, p)
		}
	case v.Kind() == reflect.Map && isObject(element(v.Type())):
		for k, item := range v.Seq2() {
			d.value(item, fmt.Sprintf("%s[%s]", path, k), field{}, p)
		}
	}
}

func (d *digester) add(path string, content []byte) {
	h := hmac.New(sha256.New, d.key)
	fmt.Fprintf(h, "%s\x00%s", path, content)
	d.all[path] = hex.EncodeToString(h.Sum(nil)[:16])
}

// contentOf stands for what is in the files and directories that a field names, a text or a list of texts. What is
// not there is nothing: what needs a file says that it is missing.
func contentOf(names reflect.Value) (sums []byte, err error) {
	if names.Kind() == reflect.String {
		return sumBelow(names.String())
	}
	for i := range names.Len() {
		below, err := sumBelow(names.Index(i).String())
		if err != nil {
			return nil, err
		}
		sums = append(sums, below...)
	}
	return sums, nil
}

// sumBelow lists the files at or below a path with the SHA-256 of their contents.
func sumBelow(root string) (sums []byte, err error) {
	root, err = filepath.EvalSymlinks(expandHome(root))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				sums, err = appendSum(sums, root, path)
			}
			return err
		})
	}
	if err != nil {
		err = fmt.Errorf("reading a file that the configuration names: %w", err)
	}
	return sums, err
}

// appendSum adds a file, or what a link leads to. What is no file, like a link to nowhere, has no content.
func appendSum(sums []byte, root, path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return sums, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	name, err := filepath.Rel(root, path)
	return fmt.Appendf(sums, "%x %s\n", h.Sum(nil), name), err
}

// Recorded reads a configuration that Resolved wrote, which was valid then. Its secrets are not those of the file, and stand beside where they came from.
func Recorded(text []byte) (*v1alpha1.Cluster, error) {
	if i := bytes.Index(text, []byte("\ncontents:")); i >= 0 {
		text = text[:i+1]
	}
	c, d := decode(text)
	if len(d.errs) > 0 {
		return nil, fmt.Errorf("the recorded configuration: %w", d.errs)
	}
	c.Origin = v1alpha1.Origin{File: "the recorded configuration", Text: text, Lines: d.lines}
	Default(c)
	return c, nil
}
