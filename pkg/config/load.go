// Package config reads cluster.yaml: strict decoding, defaults and validation.
// All problems are reported at once, each with its line, its field, what is
// allowed and the nearest right spelling.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Load reads, completes and validates the configuration in a file. The error
// holds Errors, each with a place in the file, and carries fault.ExitUsage.
// Warnings are about what works but may not be meant.
func Load(path string) (c *v1alpha1.Cluster, warnings Errors, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, unreadable(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, nil, unreadable(path, err)
	}
	info, err := f.Stat()
	return parse(path, data, err == nil && info.Mode()&0o077 != 0, false)
}

// unreadable says what to do about a file that cannot be read.
func unreadable(path string, err error) error {
	advice := "let the user who runs kubexm read it"
	switch parts := strings.Split(filepath.ToSlash(path), "/"); {
	case path == "-":
		err, advice = errors.New("- is not a file, and standard input is not read"), "write the configuration to a file, and name that: -f FILE"
	case errors.Is(err, syscall.EISDIR):
		err, advice = fmt.Errorf("%s is a directory", path), "give the file in it, like: -f "+filepath.Join(path, "cluster.yaml")
	case !errors.Is(err, fs.ErrNotExist):
	case len(parts) == 3 && parts[0] == "conf" && parts[2] == "cluster.yaml":
		advice = "create one with: kubexm config init --name " + parts[1]
	default:
		advice = "create one with: kubexm config init -f " + path
	}
	return fault.Exit(fault.Advise(fmt.Errorf("reading the configuration: %w", err), advice), fault.ExitUsage)
}

// Parse is Load for a document in memory; file only appears in messages. When
// the document can be decoded at all, c is not nil even where there are errors.
func Parse(file string, data []byte) (c *v1alpha1.Cluster, warnings Errors, err error) {
	return parse(file, data, false, false)
}

// ParseRecorded is Parse for what was applied: what only later releases refuse is a warning, as there is no file to correct.
func ParseRecorded(file string, data []byte) (c *v1alpha1.Cluster, warnings Errors, err error) {
	return parse(file, data, false, true)
}

// parse warns of secrets where others can read the file.
func parse(file string, data []byte, exposed, recorded bool) (c *v1alpha1.Cluster, warnings Errors, err error) {
	c, d := decode(data)
	errs := d.errs
	if c != nil {
		c.Origin = v1alpha1.Origin{File: file, Text: data, Lines: d.lines}
		Default(c)
		broken, odd := Validate(c)
		if path := plainSecret(c); exposed && path != "" {
			odd = append(odd, Error{Path: path, Msg: "a secret in plain text in a file that others can read; chmod 600 the file, " +
				"or use " + path + "From with env, file or exec"})
		}
		if recorded {
			old := func(e Error) bool { return e.lately }
			odd = append(odd, slices.DeleteFunc(slices.Clone(broken), func(e Error) bool { return !old(e) })...)
			broken = slices.DeleteFunc(broken, old)
		}
		errs = append(errs, d.uncovered(broken)...)
		warnings = d.uncovered(odd).place(file, d.lines)
	}
	if len(errs) == 0 {
		return c, warnings, nil
	}
	err = fault.Advise(errs.place(file, d.lines), "correct the file; `kubexm config explain FIELD` explains a field")
	return c, warnings, fault.Exit(err, fault.ExitUsage)
}

// uncovered leaves out what only follows from values that were left out.
func (d *decoder) uncovered(all Errors) Errors {
	roles := slices.ContainsFunc(slices.Collect(maps.Keys(d.dropped)), func(path string) bool { return strings.HasSuffix(path, ".roles") })
	return slices.DeleteFunc(all, func(e Error) bool {
		return d.covers(e.Path) || roles && e.Path == "spec.hosts" || d.dropped[e.Path+".roles"]
	})
}

// covers reports whether the value at path, or what it is part of, was left out.
func (d *decoder) covers(path string) bool {
	for ; path != ""; path = parent(path) {
		if d.dropped[path] {
			return true
		}
	}
	return false
}

// decode returns a nil cluster where the text is no YAML document.
func decode(data []byte) (*v1alpha1.Cluster, *decoder) {
	d := &decoder{lines: map[string]int{}, dropped: map[string]bool{}}
	var doc, more yaml.Node
	if e := notText(data); e.Msg != "" {
		d.errs = Errors{e}
		return nil, d
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		d.errs = Errors{{Line: 1, Msg: "the file is empty"}}
		return nil, d
	case err != nil:
		d.errs = Errors{syntaxError(err, data)}
		return nil, d
	}
	err := dec.Decode(&more)
	for err == nil && more.Content[0].Kind == yaml.ScalarNode && more.Content[0].Value == "" { // nothing behind ---
		err = dec.Decode(&more)
	}
	if err == nil {
		d.errs = append(d.errs, Error{Line: more.Line, Msg: "a second document; only one cluster fits in a file"})
	} else if !errors.Is(err, io.EOF) {
		d.errs = append(d.errs, syntaxError(err, data))
	}
	c := &v1alpha1.Cluster{}
	d.root = doc.Content[0]
	d.value(d.root, reflect.ValueOf(c).Elem(), "", field{})
	if d.dropped[""] {
		return nil, d
	}
	return c, d
}

var tabbed = regexp.MustCompile(`^ *\t`)

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)

// maxSize is that of a file. Hundreds of hosts fit in a tenth of it.
const maxSize = 4 << 20

// notText says why data can be no YAML text, where that can be told beforehand.
func notText(data []byte) Error {
	if len(data) > maxSize {
		return Error{Line: 1, Msg: fmt.Sprintf("too large: a configuration has at most %d MiB", maxSize>>20)}
	}
	line := 1
	if bytes.HasPrefix(data, []byte{0xff, 0xfe}) || bytes.HasPrefix(data, []byte{0xfe, 0xff}) {
		return Error{Line: line, Msg: "the text is encoded as UTF-16; save it as UTF-8"}
	}
	for i, r := range string(data) {
		switch {
		case r == '\n':
			line++
		case r == utf8.RuneError && !bytes.HasPrefix(data[i:], []byte("\uFFFD")):
			return Error{Line: line, Msg: "not UTF-8 text; save it as UTF-8"}
		case r == 0:
			return Error{Line: line, Msg: "a zero byte: not UTF-8 text, perhaps UTF-16; save it as UTF-8"}
		case unicode.IsControl(r) && r != '\t' && r != '\r' && r != '\u0085':
			return Error{Line: line, Msg: fmt.Sprintf("an invisible control character (%U); remove it", r)}
		}
	}
	return Error{}
}

// syntaxError places an error of the YAML library, and says what is meant where
// a tab is used to indent.
func syntaxError(err error, data []byte) Error {
	m := yamlError.FindStringSubmatch(strings.SplitN(err.Error(), "\n", 2)[0])
	if m == nil {
		return Error{Line: 1, Msg: err.Error()}
	}
	line, _ := strconv.Atoi(m[1])
	lines := strings.Split(string(data), "\n")
	for _, n := range []int{line, line + 1, line - 1} { // the library is off by one at times
		if n >= 1 && n <= len(lines) && tabbed.MatchString(lines[n-1]) {
			return Error{Line: n, Msg: "a tab; YAML indents with spaces"}
		}
	}
	if strings.HasPrefix(m[2], "unknown anchor") { // its name may be the beginning of a password
		m[2] = "an alias of an anchor that is not there before it; a text that begins with * needs quotes"
	}
	return Error{Line: max(line, 1), Msg: "not YAML: " + m[2]}
}
