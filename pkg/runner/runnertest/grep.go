package runnertest

import (
	"regexp"
	"slices"
	"strings"
)

// pattern is what grep looks for: one pattern, or a file of fixed strings; and
// the files that are left.
func (c *Call) pattern(o map[string]string, args []string) (re *regexp.Regexp, rest []string, ok bool) {
	p, given := o["e"]
	switch {
	case o["f"] != "":
		b, status := c.input([]string{o["f"]})
		if status != 0 || o["F"] == "" {
			return nil, nil, false
		}
		p = `\b\B` // matches nothing
		for i, l := range splitLines(b) {
			if i == 0 {
				p = ""
			} else {
				p += "|"
			}
			p += regexp.QuoteMeta(l)
		}
	case !given && len(args) == 0:
		return nil, nil, false
	case !given:
		p, args = args[0], args[1:]
	}
	switch {
	case o["f"] != "":
	case o["F"] != "":
		p = strings.ReplaceAll(regexp.QuoteMeta(p), "\n", "|") // each line is one
	case o["E"] == "":
		p = basic(p)
	}
	if o["x"] != "" {
		p = "^(?:" + p + ")$"
	}
	if o["i"] != "" {
		p = "(?i)" + p
	}
	re, err := regexp.Compile(p)
	return re, args, err == nil
}

func grep(c *Call) int {
	o, args, ok := c.opts("qxFEovicsl", "ef")
	if !ok {
		return c.Unknown()
	}
	re, args, ok := c.pattern(o, args)
	if !ok {
		return c.Unknown()
	}
	if o["l"] != "" {
		return c.containing(re, args)
	}
	b, status := c.input(args)
	var hits []string
	for _, l := range splitLines(b) {
		switch {
		case re.MatchString(l) == (o["v"] != ""):
		case o["o"] != "":
			hits = append(hits, re.FindAllString(l, -1)...)
		default:
			hits = append(hits, l)
		}
	}
	switch {
	case o["q"] != "" && len(hits) > 0:
		return 0
	case o["c"] != "":
		c.Printf("%d\n", len(hits))
	case o["q"] == "":
		c.lines(hits)
	}
	if status != 0 {
		return 2
	}
	if len(hits) == 0 {
		return 1
	}
	return 0
}

// containing lists the files in which a line matches.
func (c *Call) containing(re *regexp.Regexp, files []string) int {
	status, found := 1, 0
	for _, f := range files {
		b, bad := c.input([]string{f})
		if slices.ContainsFunc(splitLines(b), re.MatchString) {
			c.Printf("%s\n", f)
			status = 0
		}
		found = max(found, bad)
	}
	if found != 0 {
		return 2
	}
	return status
}

// basic turns a basic regular expression into an extended one.
func basic(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		switch {
		case p[i] == '\\' && i+1 < len(p) && strings.IndexByte("+?(){}|", p[i+1]) >= 0:
			i++
			b.WriteByte(p[i])
		case strings.IndexByte("+?(){}|", p[i]) >= 0:
			b.WriteString(`\` + p[i:i+1])
		default:
			b.WriteByte(p[i])
		}
	}
	return b.String()
}
