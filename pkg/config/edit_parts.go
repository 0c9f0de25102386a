package config

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lookup is the value that a mapping itself has for a key, and which of its entries that is; nil: it has none.
func lookup(m *yaml.Node, key string) (value *yaml.Node, i int) {
	if m == nil || m.Kind != yaml.MappingNode {
		return nil, 0
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key && m.Content[i].ShortTag() != "!!merge" {
			return m.Content[i+1], i / 2
		}
	}
	return nil, 0
}

// own is lookup for a value that is to be edited, which it cannot be where it stands behind an alias.
func (d *document) own(m *yaml.Node, key string) (value *yaml.Node, i int) {
	if value, i = lookup(m, key); value != nil {
		d.alias(value)
	}
	return value, i
}

func (d *document) alias(n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		d.lose("the alias *" + n.Value + " stands there for what is written elsewhere")
	}
}

// part is one entry of a list or mapping.
type part struct {
	of *yaml.Node
	i  int
}

// remove takes a part away: the last of a chain in which each is in the one before. What would be empty without
// it goes with it, and so do comments directly above it.
func (d *document) remove(chain ...part) []cut {
	p := chain[len(chain)-1]
	all := d.spans(p.of)
	if len(all) == 1 && len(chain) > 1 {
		return d.remove(chain[:len(chain)-1]...)
	}
	if d.stuck != "" || p.i >= len(all) {
		d.lose(unclear)
		return nil
	}
	d.referred(p)
	s, floor := all[p.i], 0
	if p.i > 0 {
		floor = all[p.i-1].to
	}
	switch {
	case p.of.Style&yaml.FlowStyle != 0:
		return d.removeFlow(p, all)
	case d.first(s.from):
		return []cut{d.wholeLines(s, floor)}
	case p.i == 0 && len(all) > 1 && p.of.Kind == yaml.MappingNode && d.first(all[1].from) && d.begin(all[1].from) == d.next(s.to):
		return []cut{{s.from, all[1].from, ""}} // behind a dash: the next key takes its place
	}
	d.lose(unclear)
	return nil
}

// referred looks for aliases of what is in a part.
func (d *document) referred(p part) {
	inside := []*yaml.Node{p.of.Content[p.i]}
	if p.of.Kind == yaml.MappingNode {
		inside = p.of.Content[2*p.i : 2*p.i+2]
	}
	gone := map[*yaml.Node]bool{}
	for _, n := range inside {
		walk(n, func(n *yaml.Node) bool { gone[n] = true; return true })
	}
	walk(d.root, func(n *yaml.Node) bool {
		if n.Kind == yaml.AliasNode && gone[n.Alias] && !gone[n] {
			d.lose("what has the anchor &" + n.Value + " in it is used elsewhere")
		}
		return !gone[n]
	})
}

// walk goes through nodes, and into those for which it is told to.
func walk(n *yaml.Node, into func(*yaml.Node) bool) {
	if into(n) {
		for _, c := range n.Content {
			walk(c, into)
		}
	}
}

// firstAlias is the line of the first alias in a node; 0: there is none.
func firstAlias(root *yaml.Node) (line int) {
	walk(root, func(n *yaml.Node) bool {
		if n.Kind == yaml.AliasNode && line == 0 {
			line = n.Line
		}
		return line == 0
	})
	return line
}

// first reports whether nothing stands before an offset in its line.
func (d *document) first(i int) bool { return len(bytes.TrimSpace(d.text[d.begin(i):i])) == 0 }

// last reports whether nothing but a comment stands behind an offset in its line.
func (d *document) last(i int) bool {
	for d.is(i, " \t") {
		i++
	}
	return i == d.eol(i) || d.is(i, "#")
}

// wholeLines removes the lines of an entry, with the comments directly above, and those below that are part of it by
// their indentation. floor is where the entry before ends, 0: there is none.
func (d *document) wholeLines(s span, floor int) cut {
	from := d.begin(s.from)
	col := s.from - from
	for from > 0 && d.begin(from-1) >= floor {
		if is, at := d.remark(d.begin(from - 1)); !is || at > col {
			break
		}
		from = d.begin(from - 1)
	}
	to := d.below(d.next(s.to), col)
	if from > 0 && d.begin(from-1) >= floor && d.blank(d.begin(from-1)) && d.blank(to) { // one of them is enough
		from = d.begin(from - 1)
	} else if floor == 0 && d.blank(to) && to < d.begin(len(d.text)) {
		to = d.next(to)
	}
	if n := len(d.text); to == n && from > 0 && d.text[n-1] != '\n' {
		from = d.eol(d.begin(from - 1))
	}
	return cut{from, to, ""}
}

// below goes over the comments from a line on that are indented more than a column.
func (d *document) below(line, col int) int {
	for line < len(d.text) {
		if is, at := d.remark(line); !is || at <= col {
			break
		}
		line = d.next(line)
	}
	return line
}

// comma is where the comma behind an entry ends, or the entry where it has none.
func (d *document) comma(s span) (end int, has bool) {
	i := d.skip(s.to)
	if !d.is(i, ",") {
		return s.to, false
	}
	return i + 1, true
}

func (d *document) removeFlow(p part, all []span) []cut {
	s, floor := all[p.i], d.content(p.of)
	to, has := d.comma(s)
	before := 0 // where the entry before ends
	if p.i > 0 {
		before = all[p.i-1].to
		floor, _ = d.comma(all[p.i-1])
	}
	if d.first(s.from) && d.last(to) && d.begin(floor) != d.begin(s.from) {
		cuts := []cut{d.wholeLines(span{s.from, to}, floor)}
		if !has && before > 0 {
			cuts = append(cuts, cut{floor - 1, floor, ""})
		}
		return cuts
	}
	if !has && before > 0 && !bytes.Contains(d.text[before:s.from], []byte("#")) {
		return []cut{{before, to, ""}}
	}
	from := s.from
	for has && d.is(to, " \t") {
		to++
	}
	for to == d.eol(to) && d.is(from-1, " \t") {
		from--
	}
	return []cut{{from, to, ""}}
}

// insert puts an entry, in lines without indentation, behind that with an index.
func (d *document) insert(n *yaml.Node, i int, text string) []cut {
	all := d.spans(n)
	if n.Style&yaml.FlowStyle != 0 {
		return d.insertFlow(n, all, i, text)
	}
	if i >= len(all) || d.stuck != "" {
		d.lose(unclear)
		return nil
	}
	s := all[i]
	col := s.from - d.begin(s.from)
	at := d.below(d.next(s.to), col)
	br := d.breaks(at)
	text = strings.ReplaceAll(indented(text, col), "\n", br)
	if n.Kind == yaml.SequenceNode && i == len(all)-1 && i > 0 && d.apart(all[i-1].to, s.from) {
		text = br + text
	}
	if at > 0 && d.text[at-1] != '\n' {
		return []cut{{at, at, br + text}}
	}
	return []cut{{at, at, text + br}}
}

// apart reports whether there is an empty line between two offsets.
func (d *document) apart(from, to int) bool {
	for line := d.next(from); line < d.begin(to); line = d.next(line) {
		if d.blank(line) {
			return true
		}
	}
	return false
}

func (d *document) insertFlow(n *yaml.Node, all []span, i int, text string) []cut {
	if i >= len(all) { // there is none yet
		at := d.content(n) + 1
		return []cut{{at, at, text}}
	}
	s := all[i]
	end, has := d.comma(s)
	if i == len(all)-1 && d.first(s.from) { // each has a line
		begin := d.begin(s.from)
		lead, br := string(d.text[begin:s.from]), d.breaks(s.from)
		at := d.below(d.next(end), len(lead))
		switch {
		case !d.last(end):
			return []cut{{s.to, s.to, "," + br + lead + text}}
		case has:
			return []cut{{at, at, lead + text + "," + br}}
		}
		return []cut{{s.to, s.to, ","}, {at, at, lead + text + br}}
	}
	between := ", "
	if i > 0 {
		if gap := string(d.text[all[i-1].to:s.from]); strings.Trim(gap, " ,") == "" && !strings.Contains(gap, " ,") {
			between = gap
		}
	}
	return []cut{{s.to, s.to, between + text}}
}

// indented puts spaces before every line.
func indented(text string, by int) string {
	return strings.Repeat(" ", by) + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", by))
}

// put gives the key with an index in a mapping another value; flow is how that is written.
func (d *document) put(m *yaml.Node, i int, text string) []cut {
	key, value := m.Content[2*i], m.Content[2*i+1]
	d.alias(value)
	if !empty(value) {
		return []cut{{d.content(value), d.end(value), text}}
	}
	if value.Anchor != "" || value.Style != 0 {
		d.lose(unclear)
	}
	at := d.colon(key)
	return []cut{{at, at, " " + text}}
}
