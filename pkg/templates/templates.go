// Package templates embeds and renders the configuration files that kubexm
// writes to hosts and applies to clusters.
package templates

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

//go:embed */*.tmpl
var files embed.FS

// Render renders the template "component/name" (without .tmpl). It panics on a
// template that does not fit its data, which the golden test of each template rules out.
func Render(name string, data any) []byte {
	t := template.Must(template.New(name[strings.LastIndex(name, "/")+1:]+".tmpl").Option("missingkey=error").Funcs(funcs).ParseFS(files, name+".tmpl"))
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		panic(fmt.Sprintf("rendering %s: %v", name, err))
	}
	return b.Bytes()
}

// Digest is short for a text that was rendered: pods that carry that of their objects restart when these change.
func Digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Names lists all templates, in the form that Render takes.
func Names() []string {
	all, err := fs.Glob(files, "*/*.tmpl")
	if err != nil {
		panic(err)
	}
	for i, n := range all {
		all[i] = strings.TrimSuffix(n, ".tmpl")
	}
	return all
}

var funcs = template.FuncMap{
	"base64": func(data []byte) string { return strconv.Quote(base64.StdEncoding.EncodeToString(data)) },
	"flags":  Flags,
	"indent": func(n int, s string) string { return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n)) },
	"join":   strings.Join,
}

// Flags writes command-line flags for an ExecStart, sorted, one a line.
func Flags(args map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(args)) {
		fmt.Fprintf(&b, " \\\n  %s", quote("--"+k+"="+args[k]))
	}
	return b.String()
}

// Words writes a command line for an ExecStart.
func Words(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}

// quote quotes a word for systemd (systemd.syntax(7)): % and $ would be expanded.
func quote(s string) string {
	s = strings.NewReplacer("%", "%%", "$", "$$").Replace(s)
	if !strings.ContainsAny(s, " \t\n\r\"'\\;") {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`).Replace(s) + `"`
}
