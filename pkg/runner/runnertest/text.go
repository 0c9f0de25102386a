package runnertest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// textutils are the commands about text.
func textutils() map[string]Command {
	return map[string]Command{
		"cat": cat, "head": head, "dd": dd, "tail": tail, "grep": grep, "cut": cut, "sort": sortLines, "uniq": uniq, "wc": wc, "tr": tr, "tee": tee,
		"date": date, "id": id, "cmp": compare, "sed": sed, "sleep": sleep, "printenv": printenv, "awk": nil, "perl": nil, "python3": nil,
	}
}

// input is the content of the files in turn, or standard input when there are none.
func (c *Call) input(files []string) ([]byte, int) {
	if len(files) == 0 {
		files = []string{"-"}
	}
	var all []byte
	status := 0
	for _, f := range files {
		var b []byte
		var err error
		if f == "-" {
			b, err = io.ReadAll(c.Stdin)
		} else {
			b, err = c.fs.read(c.path(f))
		}
		if err != nil {
			status = c.fail(err)
		}
		all = append(all, b...)
	}
	return all, status
}

func splitLines(b []byte) []string {
	if len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

func (c *Call) lines(list []string) {
	w := bufio.NewWriter(c.Stdout)
	for _, l := range list {
		fmt.Fprintln(w, l)
	}
	_ = w.Flush() // a reader that has enough is no error
}

func cat(c *Call) int {
	_, files, ok := c.opts("", "")
	if !ok {
		return c.Unknown()
	}
	b, status := c.input(files)
	if _, err := c.Stdout.Write(b); err != nil {
		return c.fail(err)
	}
	return status
}

func head(c *Call) int {
	o, files, ok := c.opts("q", "cn")
	if !ok {
		return c.Unknown()
	}
	if n, err := strconv.ParseInt(o["c"], 10, 64); err == nil {
		if len(files) > 0 {
			b, status := c.input(files)
			_, _ = c.Stdout.Write(b[:min(n, int64(len(b)))])
			return status
		}
		if _, err := io.CopyN(c.Stdout, c.Stdin, n); err != nil && !errors.Is(err, io.EOF) {
			return c.fail(err)
		}
		return 0
	}
	n, err := strconv.Atoi(o["n"])
	if err != nil || n < 0 {
		return c.Unknown()
	}
	b, status := c.input(files)
	l := splitLines(b)
	c.lines(l[:min(n, len(l))])
	return status
}

// dd copies count bytes.
func dd(c *Call) int {
	o := map[string]string{}
	for _, a := range c.Args[1:] {
		k, v, _ := strings.Cut(a, "=")
		o[k] = v
	}
	n, err := strconv.ParseInt(o["count"], 10, 64)
	if err != nil || o["iflag"] != "fullblock,count_bytes" || o["status"] != "none" || len(o) != 4 || o["bs"] == "" {
		return c.Unknown()
	}
	if _, err := io.CopyN(c.Stdout, c.Stdin, n); err != nil && !errors.Is(err, io.EOF) {
		return c.fail(err)
	}
	return 0
}

func tail(c *Call) int {
	o, files, ok := c.opts("q", "cn")
	if !ok {
		return c.Unknown()
	}
	b, status := c.input(files)
	if n, err := strconv.Atoi(o["c"]); err == nil && n >= 0 {
		_, _ = c.Stdout.Write(b[max(0, len(b)-n):]) // a reader that has enough is no error
		return status
	}
	l := splitLines(b)
	n, err := strconv.Atoi(strings.TrimPrefix(o["n"], "+"))
	switch {
	case err != nil:
		return c.Unknown()
	case strings.HasPrefix(o["n"], "+"):
		c.lines(l[min(max(n-1, 0), len(l)):])
	default:
		c.lines(l[max(0, len(l)-n):])
	}
	return status
}

// edited is a script of sed: "/RE/p", "s/RE/TEXT/", "s/RE/TEXT/p" or "s|RE|TEXT|".
var edited = regexp.MustCompile(`^(?:/(.+)/(p)|s/(.*)/(.*)/(p?)|s\|([^|]*)\|([^|]*)\|)$`)

// sed knows edited scripts, with -n for those that print, -i, and several with -e.
func sed(c *Call) int {
	o, args, ok := c.opts("niEe", "")
	n := 0 // of scripts
	for _, a := range c.Args {
		if a == "-e" {
			n++
		}
	}
	n = max(n, 1)
	if !ok || len(args) < n || o["i"] != "" && len(args) != n+1 {
		return c.Unknown()
	}
	b, status := c.input(args[n:])
	lines := splitLines(b)
	for _, script := range args[:n] {
		m := edited.FindStringSubmatch(script)
		if m == nil || (o["n"] != "") != (m[2]+m[5] == "p") {
			return c.Unknown()
		}
		re, err := regexp.Compile(basic(m[1] + m[3] + m[6]))
		if err != nil {
			return c.Unknown()
		}
		var out []string
		for _, l := range lines {
			at := re.FindStringSubmatchIndex(l)
			if at != nil && m[2] == "" {
				l = l[:at[0]] + string(re.ExpandString(nil, expanded.Replace(m[4]+m[7]), l, at)) + l[at[1]:]
			}
			if at != nil || o["n"] == "" {
				out = append(out, l)
			}
		}
		lines = out
	}
	if o["i"] == "" {
		c.lines(lines)
		return status
	}
	if status != 0 {
		return 2
	}
	f, err := c.create(c.path(args[n]), 0o644, true)
	if err == nil {
		_, err = f.Write([]byte(strings.Join(lines, "\n") + "\n"))
	}
	if err != nil {
		return c.fail(err)
	}
	return 0
}

// expanded turns what sed puts in into what package regexp does.
var expanded = strings.NewReplacer("$", "$$", "&", "${0}", `\1`, "${1}")

func cut(c *Call) int {
	o, files, ok := c.opts("s", "df")
	n, err := strconv.Atoi(strings.TrimSuffix(o["f"], "-"))
	if !ok || err != nil || o["d"] == "" {
		return c.Unknown()
	}
	b, status := c.input(files)
	var out []string
	for _, l := range splitLines(b) {
		f := strings.Split(l, o["d"])
		switch {
		case len(f) == 1:
			out = append(out, l)
		case strings.HasSuffix(o["f"], "-"):
			out = append(out, strings.Join(f[min(n-1, len(f)):], o["d"]))
		case n <= len(f):
			out = append(out, f[n-1])
		default:
			out = append(out, "")
		}
	}
	c.lines(out)
	return status
}

func sortLines(c *Call) int {
	o, files, ok := c.opts("urnV", "")
	if !ok || o["n"] != "" {
		return c.Unknown()
	}
	b, status := c.input(files)
	l := splitLines(b)
	slices.Sort(l)
	if o["V"] != "" {
		slices.SortStableFunc(l, versions)
	}
	if o["u"] != "" {
		l = slices.Compact(l)
	}
	if o["r"] != "" {
		slices.Reverse(l)
	}
	c.lines(l)
	return status
}

func uniq(c *Call) int {
	b, status := c.input(c.Args[1:])
	c.lines(slices.Compact(splitLines(b)))
	return status
}

func wc(c *Call) int {
	o, files, ok := c.opts("lc", "")
	if !ok || len(files) > 1 {
		return c.Unknown()
	}
	b, status := c.input(files)
	n := bytes.Count(b, []byte("\n"))
	if o["c"] != "" {
		n = len(b)
	}
	if len(files) == 1 {
		c.Printf("%d %s\n", n, files[0])
	} else {
		c.Printf("%d\n", n)
	}
	return status
}

// tr replaces or deletes one character.
func tr(c *Call) int {
	o, sets, ok := c.opts("d", "")
	unescape := strings.NewReplacer(`\0`, "\x00", `\n`, "\n", `\t`, "\t")
	for i := range sets {
		sets[i] = unescape.Replace(sets[i])
	}
	b, status := c.input(nil)
	switch {
	case ok && o["d"] != "" && len(sets) == 1:
		b = bytes.Map(func(r rune) rune {
			if strings.ContainsRune(sets[0], r) {
				return -1
			}
			return r
		}, b)
	case ok && len(sets) == 2 && len(sets[0]) == 1 && len(sets[1]) == 1:
		b = bytes.ReplaceAll(b, []byte(sets[0]), []byte(sets[1]))
	default:
		return c.Unknown()
	}
	if _, err := c.Stdout.Write(b); err != nil {
		return c.fail(err)
	}
	return status
}

func tee(c *Call) int {
	o, files, ok := c.opts("a", "")
	if !ok || len(files) != 1 {
		return c.Unknown()
	}
	b, _ := c.input(nil)
	f, err := c.create(c.path(files[0]), 0o666&^c.Umask, o["a"] == "")
	if err == nil {
		_, err = f.Write(b)
	}
	if err != nil {
		return c.fail(err)
	}
	_, _ = c.Stdout.Write(b)
	return 0
}

func compare(c *Call) int {
	o, files, ok := c.opts("s", "")
	if !ok || len(files) != 2 || o["s"] == "" {
		return c.Unknown()
	}
	a, s1 := c.input(files[:1])
	b, s2 := c.input(files[1:])
	switch {
	case s1+s2 > 0:
		return 2
	case !bytes.Equal(a, b):
		return 1
	}
	return 0
}

func date(c *Call) int {
	if len(c.Args) != 2 || c.Args[1] != "+%s" {
		return c.Unknown()
	}
	c.Printf("%d\n", time.Now().Add(c.Host.Skew).Unix())
	return 0
}

func id(c *Call) int {
	o, args, ok := c.opts("un", "")
	if !ok || len(args) > 1 {
		return c.Unknown()
	}
	if len(args) == 1 {
		if !c.account("passwd", args[0]) {
			return c.Failf(1, "'%s': no such user", args[0])
		}
		c.Printf("1000\n")
		return 0
	}
	if o["n"] != "" {
		c.Printf("root\n")
	} else {
		c.Printf("0\n")
	}
	return 0
}
