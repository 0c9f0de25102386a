package runnertest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// coreutils are the commands about files.
func coreutils() map[string]Command {
	return map[string]Command{
		" which": which, " kill": kill, "stat": stat, "mkdir": mkdir, "rmdir": rmdir, "rm": rm, "mv": mv, "cp": cp,
		"chmod": chmod, "chown": chown, "ln": ln, "readlink": readlink, "install": install, "touch": touch,
		"sha256sum": sha256sum, "sync": func(*Call) int { return 0 }, "df": df, "basename": basename, "dirname": dirname,
		"ls": ls, "flock": flock, "timeout": timeout, "tar": untar, "mktemp": mktemp,
	}
}

func which(c *Call) int {
	if run, _ := c.command(c.Args[1]); run == nil {
		return 1
	}
	c.Printf("/usr/bin/%s\n", c.Args[1])
	return 0
}

// kill ends processes at once: a process is what a control group has. Or it signals one that is to read its files again.
func kill(c *Call) int {
	if len(c.Args) == 4 && c.Args[1] == "-s" && (c.Args[2] == "HUP" || c.Args[2] == "USR2") {
		return c.signal(c.Args[3])
	}
	if len(c.Args) < 3 || c.Args[1] != "-KILL" {
		return c.Unknown()
	}
	for _, p := range c.paths("/sys/fs/cgroup") {
		if text, _ := c.Get(p); path.Base(p) == "cgroup.procs" {
			left := slices.DeleteFunc(splitLines([]byte(text)), func(pid string) bool { return slices.Contains(c.Args[2:], pid) })
			c.put(p, strings.Join(append(left, ""), "\n"), 0o644)
		}
	}
	c.changed("kill %s", strings.Join(c.Args[2:], " "))
	return 0
}

// permissions spells mode in octal as chmod and stat do.
func permissions(m fs.FileMode) uint32 {
	p := uint32(m.Perm())
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if m&flag != 0 {
			p |= bit
		}
	}
	return p
}

func parseMode(s string) (fs.FileMode, bool) {
	n, err := strconv.ParseUint(s, 8, 32)
	m := fs.FileMode(n) & fs.ModePerm
	for bit, flag := range map[uint64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if n&bit != 0 {
			m |= flag
		}
	}
	return m, err == nil
}

func typeName(i info) string {
	switch {
	case i.IsDir():
		return "directory"
	case i.mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case i.mode&fs.ModeSocket != 0:
		return "socket"
	case i.size == 0:
		return "regular empty file"
	}
	return "regular file"
}

func stat(c *Call) int {
	o, files, ok := c.opts("L", "c")
	if !ok || o["c"] == "" {
		return c.Unknown()
	}
	status := 0
	for _, f := range files {
		i, err := c.fs.stat(c.path(f), o["L"] != "")
		if err != nil {
			status = c.Failf(1, "cannot statx '%s': %s", f, sentence(errors.Unwrap(err)))
			continue
		}
		stamp := func(t time.Time) string { return t.Format("2006-01-02 15:04:05.000000000 +0000") }
		r := strings.NewReplacer("%s", fmt.Sprint(i.size), "%a", fmt.Sprintf("%o", permissions(i.mode)), "%U", i.owner, "%G", i.group,
			"%u", c.id("passwd", i.owner), "%g", c.id("group", i.group), "%n", f, "%i", fmt.Sprint(i.ino), "%d", "64769", "%z", stamp(i.ctime), "%y", stamp(i.mtime), "%Y", fmt.Sprint(i.mtime.Unix()), "%F", typeName(i))
		out := r.Replace(o["c"])
		if strings.Contains(out, "%") {
			return c.Unknown()
		}
		c.Printf("%s\n", out)
	}
	return status
}

func mkdir(c *Call) int {
	o, dirs, ok := c.opts("p", "m")
	if !ok {
		return c.Unknown()
	}
	for _, d := range dirs {
		perm := fs.ModePerm &^ c.Umask
		if o["p"] != "" && c.fs.exists(c.path(d)) {
			if i, _ := c.fs.stat(c.path(d), true); i.IsDir() {
				continue
			}
		}
		var err error
		if parent := path.Dir(c.path(d)); o["p"] != "" {
			err = c.fs.mkdirAll(parent, perm)
		}
		if m, ok := parseMode(o["m"]); ok && o["m"] != "" {
			perm = m
		}
		if err == nil {
			err = c.fs.mkdir(c.path(d), perm)
		}
		if i, _ := c.fs.stat(c.path(d), true); o["p"] != "" && errors.Is(err, syscall.EEXIST) && i.IsDir() { // another was quicker
			continue
		}
		if err != nil {
			return c.Failf(1, "cannot create directory '%s': %s", d, sentence(errors.Unwrap(err)))
		}
		c.changed("mkdir %s", c.path(d))
	}
	return 0
}

func rmdir(c *Call) int {
	_, dirs, ok := c.opts("", "")
	if !ok {
		return c.Unknown()
	}
	status := 0
	for _, d := range dirs {
		i, err := c.fs.stat(c.path(d), false)
		if err == nil && !i.IsDir() {
			err = fail("remove", d, syscall.ENOTDIR)
		} else if err == nil {
			err = c.fs.remove(c.path(d), false)
		}
		if err != nil {
			status = c.Failf(1, "failed to remove '%s': %s", d, sentence(errors.Unwrap(err)))
			continue
		}
		c.changed("rmdir %s", c.path(d))
	}
	return status
}

func rm(c *Call) int {
	o, files, ok := c.opts("rf", "", "--one-file-system")
	if !ok {
		return c.Unknown()
	}
	status := 0
	for _, f := range files {
		i, err := c.fs.stat(c.path(f), false)
		switch {
		case err != nil && o["f"] != "" && errors.Is(err, fs.ErrNotExist), f == "" && o["f"] != "":
			continue
		case err == nil && i.IsDir() && o["r"] == "":
			err = fail("remove", f, syscall.EISDIR)
		case err == nil:
			err = c.fs.remove(c.path(f), true)
		}
		if err != nil {
			status = c.Failf(1, "cannot remove '%s': %s", f, sentence(errors.Unwrap(err)))
			continue
		}
		c.changed("rm %s", c.path(f))
	}
	return status
}

// target is where a file goes that is copied or moved to p: p, or inside it.
func (c *Call) target(from, p string, plain bool) string {
	if i, err := c.fs.stat(c.path(p), true); err == nil && i.IsDir() && !plain {
		return path.Join(c.path(p), path.Base(from))
	}
	return c.path(p)
}

func mv(c *Call) int {
	o, files, ok := c.opts("fT", "")
	if !ok || len(files) < 2 {
		return c.Unknown()
	}
	last := len(files) - 1
	for _, f := range files[:last] {
		to := c.target(f, files[last], o["T"] != "")
		if err := c.fs.rename(c.path(f), to); err != nil {
			return c.Failf(1, "cannot move '%s' to '%s': %s", f, to, sentence(errors.Unwrap(err)))
		}
		c.changed("mv %s %s", c.path(f), to)
	}
	return 0
}

func cp(c *Call) int {
	o, files, ok := c.opts("aprRfTd", "")
	if !ok || len(files) < 2 {
		return c.Unknown()
	}
	last := len(files) - 1
	for _, f := range files[:last] {
		n, err := c.fs.clone(c.path(f), o["a"] == "" && o["d"] == "")
		if err != nil {
			return c.Failf(1, "cannot stat '%s': %s", f, sentence(errors.Unwrap(err)))
		}
		if n.mode.IsDir() && o["a"]+o["r"]+o["R"] == "" {
			return c.Failf(1, "-r not specified; omitting directory '%s'", f)
		}
		if o["a"]+o["p"] == "" {
			n.owner, n.group, n.mode = "root", "root", n.mode&^c.Umask
		}
		to := c.target(f, files[last], o["T"] != "")
		if err := c.fs.link(to, n); err != nil {
			return c.Failf(1, "cannot create '%s': %s", to, sentence(errors.Unwrap(err)))
		}
		c.changed("cp %s %s", c.path(f), to)
	}
	return 0
}

// apply changes the files, and with R all below them.
func (c *Call) apply(files []string, recursive bool, fn func(*inode)) int {
	for _, f := range files {
		all := []string{c.path(f)}
		if recursive {
			c.fs.each(c.path(f), func(p string, i info) {
				if i.mode&fs.ModeSymlink == 0 {
					all = append(all, p)
				}
			})
		}
		for _, p := range all {
			if err := c.fs.change(p, true, fn); err != nil {
				return c.Failf(1, "cannot access '%s': %s", p, sentence(errors.Unwrap(err)))
			}
		}
		c.changed("%s %s", c.Args[0], c.path(f))
	}
	return 0
}

func chmod(c *Call) int {
	if len(c.Args) > 1 && strings.HasPrefix(c.Args[1], "+") { // not an option
		if c.Args[1] != "+x" {
			return c.Unknown()
		}
		return c.apply(c.Args[2:], false, func(n *inode) { n.mode |= 0o111 })
	}
	o, args, ok := c.opts("R", "")
	if !ok || len(args) < 2 {
		return c.Unknown()
	}
	m, ok := parseMode(args[0])
	if !ok {
		return c.Unknown()
	}
	return c.apply(args[1:], o["R"] != "", func(n *inode) { n.mode = n.mode&typeBits | m })
}

func chown(c *Call) int {
	o, args, ok := c.opts("R", "")
	if !ok || len(args) < 2 {
		return c.Unknown()
	}
	user, group, _ := strings.Cut(args[0], ":")
	user, group = c.named("passwd", user), c.named("group", group)
	if !c.account("passwd", user) || group != "" && !c.account("group", group) {
		return c.Failf(1, "invalid user: '%s'", args[0])
	}
	return c.apply(args[1:], o["R"] != "", func(n *inode) {
		n.owner = user
		if group != "" {
			n.group = group
		}
	})
}

// id is the number that /etc/passwd or /etc/group has for a name.
func (c *Call) id(file, name string) string {
	b, _ := c.fs.read("/etc/" + file) // without it no name is known
	for l := range strings.Lines(string(b)) {
		if f := strings.Split(strings.TrimSpace(l), ":"); len(f) > 2 && f[0] == name {
			return f[2]
		}
	}
	return "?"
}

// named is the name that /etc/passwd or /etc/group has for a number; anything else stays as it is.
func (c *Call) named(file, id string) string {
	b, _ := c.fs.read("/etc/" + file) // without it no number is known
	for l := range strings.Lines(string(b)) {
		if f := strings.Split(strings.TrimSpace(l), ":"); len(f) > 2 && f[2] == id {
			return f[0]
		}
	}
	return id
}

// account reports whether /etc/passwd or /etc/group has the name.
func (c *Call) account(file, name string) bool {
	b, err := c.fs.read("/etc/" + file)
	return err == nil && strings.Contains("\n"+string(b), "\n"+name+":")
}

func ln(c *Call) int {
	o, args, ok := c.opts("sfnT", "")
	if !ok || len(args) != 2 {
		return c.Unknown()
	}
	to := c.target(args[0], args[1], o["T"]+o["n"] != "")
	kind, link := "symbolic link", func() error { return c.fs.symlink(args[0], to) }
	if o["s"] == "" {
		kind, link = "hard link", func() error { return c.fs.hardLink(c.path(args[0]), to) }
	}
	if _, err := c.fs.stat(to, false); err == nil && o["f"] == "" {
		return c.Failf(1, "failed to create %s '%s': File exists", kind, to)
	}
	if err := link(); err != nil {
		return c.fail(err)
	}
	c.changed("ln %s %s", args[0], to)
	return 0
}

// running matches the program of a process.
var running = regexp.MustCompile(`^(/proc/[0-9]+/)exe$`)

// exe is the path of what a process runs, and whether another file is there by now; is: p is that of a process.
func (h *Host) exe(p string) (exe string, replaced, is bool) {
	m := running.FindStringSubmatch(p)
	i, err := h.fs.stat(p, false)
	if m == nil || err != nil {
		return "", false, false
	}
	line, _ := h.Get(m[1] + "cmdline")
	exe, _, _ = strings.Cut(line, "\x00")
	now, err := h.fs.stat(exe, true)
	return exe, err == nil && now.ino != i.ino, true
}

func readlink(c *Call) int {
	o, args, ok := c.opts("fe", "")
	if !ok || len(args) != 1 {
		return c.Unknown()
	}
	if o["f"]+o["e"] != "" {
		return c.Unknown()
	}
	if exe, replaced, is := c.exe(c.path(args[0])); is {
		if replaced {
			exe += " (deleted)"
		}
		c.Printf("%s\n", exe)
		return 0
	}
	i, err := c.fs.stat(c.path(args[0]), false)
	if err != nil || i.link == "" {
		return 1
	}
	c.Printf("%s\n", i.link)
	return 0
}

func install(c *Call) int {
	o, args, ok := c.opts("dD", "mog")
	if !ok || o["d"] == "" || len(args) == 0 {
		return c.Unknown()
	}
	m, ok := parseMode(o["m"])
	if !ok {
		m = 0o755
	}
	for _, d := range args {
		if err := c.fs.mkdirAll(c.path(d), 0o755); err != nil {
			return c.fail(err)
		}
	}
	return c.apply(args, false, func(n *inode) {
		n.mode = n.mode&typeBits | m
		if o["o"] != "" {
			n.owner = o["o"]
		}
		if o["g"] != "" {
			n.group = o["g"]
		}
	})
}

func touch(c *Call) int {
	for _, f := range c.Args[1:] {
		if _, err := c.create(c.path(f), 0o666&^c.Umask, false); err != nil {
			return c.fail(err)
		}
	}
	return 0
}

func sha256sum(c *Call) int {
	if len(c.Args) == 1 {
		b, err := io.ReadAll(c.Stdin)
		if err != nil {
			return c.fail(err)
		}
		c.Printf("%x  -\n", sha256.Sum256(b))
		return 0
	}
	for _, f := range c.Args[1:] {
		b, err := c.fs.read(c.path(f))
		if err != nil {
			return c.fail(err)
		}
		c.Printf("%x  %s\n", sha256.Sum256(b), f)
	}
	return 0
}
