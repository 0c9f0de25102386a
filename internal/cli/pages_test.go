package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
	"mvdan.cc/sh/v3/syntax"

	"github.com/kubexm/kubexm/pkg/config"
)

// page is a document of this repository.
type page struct {
	file  string // from the repository's root
	text  []byte
	doc   ast.Node
	marks map[string]bool // of its headings, as in URLs
}

// readPages reads all pages, by file.
func readPages(t *testing.T) map[string]*page {
	t.Helper()
	all, root := map[string]*page{}, os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"node_modules", "testdata", "bin", "dist", "conf"}, d.Name())):
			return fs.SkipDir
		case d.IsDir() || path.Ext(file) != ".md":
			return nil
		}
		body, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		p := &page{file: file, text: body, marks: map[string]bool{}}
		p.doc = goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(body))
		p.walk(func(n ast.Node) {
			if n.Kind() == ast.KindHeading {
				p.marks[mark(p.words(n))] = true
			}
		})
		all[file] = p
		return nil
	})
	if err != nil || len(all) < 50 {
		t.Fatalf("%d pages, %v", len(all), err)
	}
	return all
}

func (p *page) walk(f func(n ast.Node)) {
	_ = ast.Walk(p.doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			f(n)
		}
		return ast.WalkContinue, nil
	})
}

// words is the text of a node without its markup.
func (p *page) words(n ast.Node) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, is := n.(*ast.Text); is && entering {
			b.Write(t.Segment.Value(p.text))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

func (p *page) line(n ast.Node) int {
	for n != nil && (n.Type() == ast.TypeInline || n.Lines().Len() == 0) {
		n = n.Parent()
	}
	if n == nil {
		return 1
	}
	return 1 + bytes.Count(p.text[:n.Lines().At(0).Start], []byte("\n"))
}

func (p *page) code(n *ast.FencedCodeBlock) string { return string(n.Lines().Value(p.text)) }

var unmarked = regexp.MustCompile(`[^\p{L}\p{N}\p{M} _-]`)

// mark is what GitHub makes of a heading in URLs.
func mark(heading string) string {
	return strings.ReplaceAll(unmarked.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// TestLinks follows all links between pages, to their headings too.
func TestLinks(t *testing.T) {
	all := readPages(t)
	for _, p := range all {
		p.walk(func(n ast.Node) {
			var to string
			switch n := n.(type) {
			case *ast.Link:
				to = string(n.Destination)
			case *ast.Image:
				to = string(n.Destination)
			default:
				return
			}
			if err := p.follow(to, all); err != nil {
				t.Errorf("%s:%d: %s: %v", p.file, p.line(n), to, err)
			}
		})
	}
}

func (p *page) follow(to string, all map[string]*page) error {
	u, err := url.Parse(to)
	if err != nil || u.Scheme == "https" {
		return err
	}
	if u.Scheme != "" || u.Host != "" {
		return errors.New("neither a file nor https")
	}
	file := p.file
	if u.Path != "" {
		file = path.Join(path.Dir(p.file), u.Path)
	}
	if _, err := os.Stat(filepath.Join("../..", file)); err != nil {
		return err
	}
	if u.Fragment != "" && (all[file] == nil || !all[file].marks[u.Fragment]) {
		return fmt.Errorf("%s has no such heading", file)
	}
	return nil
}

// TestPagesInStep compares the pages with the Chinese ones: they have the same headings, commands, tables and links.
func TestPagesInStep(t *testing.T) {
	all := readPages(t)
	english := regexp.MustCompile(`^docs/(adr/|cli/|config/|benchmarks|support-matrix)`) // only
	pairs := map[string]string{"README.md": "README.zh-CN.md"}
	for file := range all {
		rest, is := strings.CutPrefix(file, "docs/")
		if rest, zh := strings.CutPrefix(rest, "zh/"); zh {
			pairs["docs/"+rest] = file
		} else if is && !english.MatchString(file) {
			pairs[file] = "docs/zh/" + rest
		}
	}
	for en, zh := range pairs {
		if all[en] == nil || all[zh] == nil {
			t.Errorf("there is only one of %s and %s", en, zh)
			continue
		}
		if diff := cmp.Diff(all[en].outline(t), all[zh].outline(t)); diff != "" {
			t.Errorf("(-%s +%s):\n%s", en, zh, diff)
		}
	}
}

// outline is what a page and its translation have in common.
func (p *page) outline(t *testing.T) (lines []string) {
	var links []string // of a section, in an order of their own in each language
	defer func() { lines = append(lines, slices.Sorted(slices.Values(links))...) }()
	p.walk(func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Heading:
			lines = append(append(lines, slices.Sorted(slices.Values(links))...), strings.Repeat("#", n.Level))
			links = nil
		case *ast.Link:
			links = append(links, p.target(string(n.Destination)))
		case *east.Table:
			lines = append(lines, fmt.Sprintf("table of %d rows", n.ChildCount()))
		case *ast.FencedCodeBlock:
			lines = append(lines, "code: "+string(n.Language(p.text)))
			if p.isShell(n) {
				lines = append(lines, commands(t, p.code(n)))
			}
		}
	})
	return lines
}

// target is the English file that a link leads to, or that its Chinese one translates. The link to the other language leads to the page itself.
func (p *page) target(to string) string {
	if strings.Contains(to, "://") {
		return to
	}
	to, _, _ = strings.Cut(to, "#")
	to = path.Join(path.Dir(p.file), to)
	if to == path.Dir(p.file) {
		to = p.file
	}
	return strings.Replace(strings.Replace(to, "README.zh-CN.md", "README.md", 1), "docs/zh/", "docs/", 1)
}

func (p *page) isShell(n *ast.FencedCodeBlock) bool { return string(n.Language(p.text)) == "sh" }

// commands are the lines of a shell script without comments.
func commands(t *testing.T, script string) string {
	t.Helper()
	file, err := syntax.NewParser().Parse(strings.NewReader(script), "")
	if err != nil {
		t.Fatalf("%v in:\n%s", err, script)
	}
	var out strings.Builder
	if err := syntax.NewPrinter().Print(&out, file); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestCommandsOfPages has kubexm itself read the command lines in the pages.
func TestCommandsOfPages(t *testing.T) {
	seen := 0
	for _, p := range readPages(t) {
		p.walk(func(n ast.Node) {
			var script string
			whole := true
			switch n := n.(type) {
			case *ast.FencedCodeBlock:
				if !p.isShell(n) {
					return
				}
				script = p.code(n)
			case *ast.CodeSpan: // maybe a command's name alone
				whole = false
				if script = p.words(n); !strings.HasPrefix(script, "kubexm ") || strings.HasSuffix(script, "...") {
					return
				}
			default:
				return
			}
			file, err := syntax.NewParser().Parse(strings.NewReader(script), "")
			if err != nil {
				t.Errorf("%s:%d: %v", p.file, p.line(n), err)
				return
			}
			syntax.Walk(file, func(node syntax.Node) bool {
				if call, is := node.(*syntax.CallExpr); is && len(call.Args) > 0 && path.Base(call.Args[0].Lit()) == "kubexm" {
					seen++
					if err := reads(call.Args[1:], whole); err != nil {
						t.Errorf("%s:%d: %v in:\n%s", p.file, p.line(n), err, script)
					}
				}
				return true
			})
		})
	}
	if seen < 300 {
		t.Errorf("only %d commands were seen", seen)
	}
}

// reads says whether kubexm would take the words of a command line, or could where it is not whole, but does nothing.
func reads(words []*syntax.Word, whole bool) error {
	var args []string
	for _, w := range words {
		var b strings.Builder
		if err := syntax.NewPrinter().Print(&b, w); err != nil {
			return err
		}
		args = append(args, strings.Trim(b.String(), `"'`))
	}
	cmd, rest, err := (&program{}).root().Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil || !whole {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// TestConfigurationsOfPages has the whole configurations in the pages checked.
func TestConfigurationsOfPages(t *testing.T) {
	home, seen := t.TempDir(), 0
	t.Setenv("HOME", home)
	if err := errors.Join(os.Mkdir(filepath.Join(home, ".ssh"), 0o700), writeKey(home), os.Rename(filepath.Join(home, "key"), filepath.Join(home, ".ssh/id_ed25519"))); err != nil {
		t.Fatal(err)
	}
	for _, p := range readPages(t) {
		p.walk(func(n ast.Node) {
			block, is := n.(*ast.FencedCodeBlock)
			if !is || string(block.Language(p.text)) != "yaml" || !strings.HasPrefix(p.code(block), "apiVersion: kubexm.io/") {
				return
			}
			seen++
			if _, _, err := config.Parse(p.file, []byte(p.code(block))); err != nil {
				t.Errorf("%s:%d: %v", p.file, p.line(n), err)
			}
		})
	}
	if seen < 4 {
		t.Errorf("only %d configurations were seen", seen)
	}
}
