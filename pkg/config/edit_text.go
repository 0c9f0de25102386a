package config

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// document is the text of a configuration, with the places of what stands in it.
type document struct {
	*v1alpha1.Cluster
	text  []byte
	root  *yaml.Node
	lines []int  // where each begins
	stuck string // why the text cannot be edited; the first reason
}

// newDocument is for a text that decodes without errors.
func newDocument(text []byte, c *v1alpha1.Cluster, root *yaml.Node) *document {
	d := &document{Cluster: c, text: text, root: root, lines: []int{0}}
	for i, b := range text {
		if b == '\n' {
			d.lines = append(d.lines, i+1)
		}
	}
	return d
}

func (d *document) lose(why string) { d.stuck = cmp.Or(d.stuck, why) }

// unclear is why an edit fails where the text is not what the places of its parts let expect.
const unclear = "it is written in a way that kubexm cannot edit"

// cut replaces what stands between two offsets.
type cut struct {
	from, to int
	put      string
}

// with returns the text with cuts made, which must not overlap.
func (d *document) with(cuts ...cut) []byte {
	slices.SortStableFunc(cuts, func(a, b cut) int { return cmp.Compare(a.from, b.from) })
	var out []byte
	at := 0
	for _, c := range cuts {
		if c.from < at || c.to < c.from || c.to > len(d.text) {
			d.lose(unclear)
			return nil
		}
		out = append(append(out, d.text[at:c.from]...), c.put...)
		at = c.to
	}
	return append(out, d.text[at:]...)
}

// is reports whether the byte at an offset is one of some.
func (d *document) is(i int, some string) bool {
	return i >= 0 && i < len(d.text) && strings.IndexByte(some, d.text[i]) >= 0
}

// at is where a node begins, with its anchor and tag.
func (d *document) at(n *yaml.Node) int {
	if n.Line < 1 || n.Line > len(d.lines) {
		return len(d.text)
	}
	i := d.lines[n.Line-1]
	for range n.Column - 1 { // the library counts characters
		_, size := utf8.DecodeRune(d.text[i:])
		i += size
	}
	return i
}

// content is where a node begins, without its anchor and tag.
func (d *document) content(n *yaml.Node) int {
	i := d.at(n)
	for d.is(i, "&!") {
		for i < len(d.text) && !d.is(i, " \t\r\n") {
			i++
		}
		if !empty(n) {
			i = d.skip(i)
		}
	}
	return i
}

// empty reports whether a node is a value that is left out.
func empty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value == "" && n.Style&^yaml.TaggedStyle == 0
}

// skip goes over white space and comments.
func (d *document) skip(i int) int {
	for i < len(d.text) {
		switch {
		case d.is(i, "#"):
			i = d.eol(i)
		case d.is(i, " \t\r\n"):
			i++
		default:
			return i
		}
	}
	return i
}

// end is where a node ends.
func (d *document) end(n *yaml.Node) int {
	i := d.content(n)
	switch {
	case n.Kind == yaml.AliasNode:
		return i + 1 + len(n.Value)
	case empty(n):
		return i
	case n.Kind == yaml.ScalarNode:
		return d.scalarEnd(n, i)
	}
	open := n.Style&yaml.FlowStyle != 0 && d.is(i, "[{")
	if all := d.spans(n); len(all) > 0 {
		i = all[len(all)-1].to
	} else if open {
		i++
	}
	if !open { // a block, or the one pair of [a: b]
		return i
	}
	if i = d.skip(i); d.is(i, ",") {
		i = d.skip(i + 1)
	}
	if !d.is(i, "]}") {
		d.lose(unclear)
	}
	return i + 1
}

func (d *document) scalarEnd(n *yaml.Node, i int) int {
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 && strings.TrimSpace(n.Value) == "":
		return d.eol(i)
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return d.blockEnd(i)
	case n.Style&yaml.SingleQuotedStyle != 0:
		for i++; i < len(d.text) && (d.text[i] != '\'' || d.is(i+1, "'")); i++ {
			if d.text[i] == '\'' {
				i++
			}
		}
		return min(i+1, len(d.text))
	case n.Style&yaml.DoubleQuotedStyle != 0:
		for i++; i < len(d.text) && d.text[i] != '"'; i++ {
			if d.text[i] == '\\' {
				i++
			}
		}
		return min(i+1, len(d.text))
	}
	for _, b := range []byte(n.Value) { // lines may be folded
		if strings.IndexByte(" \t\r\n", b) >= 0 {
			continue
		}
		for d.is(i, " \t\r\n") {
			i++
		}
		if i >= len(d.text) || d.text[i] != b {
			d.lose(unclear)
			return i
		}
		i++
	}
	return i
}

// blockEnd is where a text ends that begins with | or > at an offset.
func (d *document) blockEnd(i int) int {
	for i++; d.is(i, "+-123456789"); i++ {
		if !d.is(i, "+-") {
			d.lose("a text in it has its indentation given by a number")
		}
	}
	end, indent := d.eol(i), 0
	for line := d.next(end); line < len(d.text); line = d.next(line) {
		col := d.indent(line)
		if d.blank(line) {
			continue
		}
		if indent == 0 {
			if indent = col; indent == 0 {
				break
			}
		}
		if col < indent {
			break
		}
		end = d.eol(line)
	}
	return end
}

// span is where an entry of a list or mapping stands.
type span struct{ from, to int }

// spans are the entries of a list or mapping; in a block list each begins with its dash.
func (d *document) spans(n *yaml.Node) []span {
	var all []span
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			to := 0
			if key, value := n.Content[i], n.Content[i+1]; empty(value) && value.Anchor == "" && value.Style == 0 {
				to = d.colon(key)
			} else {
				to = d.end(value)
			}
			all = append(all, span{d.at(n.Content[i]), to})
		}
		return all
	}
	i := d.content(n)
	for _, c := range n.Content {
		s := span{d.at(c), d.end(c)}
		if n.Style&yaml.FlowStyle == 0 {
			if s.from = d.skip(i); !d.is(s.from, "-") {
				d.lose(unclear)
			}
			i = s.to
		}
		all = append(all, s)
	}
	return all
}

// colon is where a key with its colon ends.
func (d *document) colon(key *yaml.Node) int {
	end := d.end(key)
	i := end
	for d.is(i, " \t") {
		i++
	}
	if d.is(i, ":") {
		return i + 1
	}
	return end
}

// begin is where the line of an offset begins.
func (d *document) begin(i int) int {
	n, found := slices.BinarySearch(d.lines, i)
	if !found {
		n--
	}
	return d.lines[n]
}

// eol is where the line of an offset ends, without its line break.
func (d *document) eol(i int) int {
	end := len(d.text)
	if n := bytes.IndexByte(d.text[min(i, end):], '\n'); n >= 0 {
		end = i + n
	}
	if end > i && d.text[end-1] == '\r' {
		end--
	}
	return end
}

// next is where the line after that of an offset begins.
func (d *document) next(i int) int {
	n := bytes.IndexByte(d.text[min(i, len(d.text)):], '\n')
	if n < 0 {
		return len(d.text)
	}
	return i + n + 1
}

// indent is the number of spaces at the beginning of a line.
func (d *document) indent(line int) int {
	i := line
	for d.is(i, " ") {
		i++
	}
	return i - line
}

func (d *document) blank(line int) bool { return len(bytes.TrimSpace(d.text[line:d.eol(line)])) == 0 }

// remark reports whether a line is a comment, and how far that is indented.
func (d *document) remark(line int) (bool, int) {
	i := line
	for d.is(i, " \t") {
		i++
	}
	return d.is(i, "#"), i - line
}

// breaks is how lines end around an offset.
func (d *document) breaks(i int) string {
	n := bytes.LastIndexByte(d.text[:i], '\n')
	if n < 0 {
		n = bytes.IndexByte(d.text, '\n')
	}
	if n > 0 && d.text[n-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
