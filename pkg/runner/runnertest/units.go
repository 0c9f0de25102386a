package runnertest

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// unit is what systemd knows of a unit since it last read its files.
type unit struct {
	files  map[string]string // path -> content, as read
	conf   unitConf
	active string // active, inactive, failed
	result string
	pid    int
	ended  bool // its program has, at least once
	worker int  // process that a reload has made; 0: none
}

// unitConf is what the fake looks at in a unit's files.
type unitConf struct {
	exec      []string
	before    []string // ExecStartPre=
	again     []string // ExecReload=
	dirs      []string // RuntimeDirectory=
	env       []string
	kind      string // Type=
	remain    bool   // RemainAfterExit=
	wantedBy  []string
	envFiles  []string
	malformed string
}

// unitDirs are where units and drop-ins are looked for, most important first.
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

func unitName(s string) string {
	if path.Ext(s) == "" {
		return s + ".service"
	}
	return s
}

// unitFiles reads the files of a unit, the unit itself first; nil: there is none.
func (h *Host) unitFiles(name string) (order []string, files map[string]string) {
	for _, d := range unitDirs {
		if b, err := h.fs.read(path.Join(d, name)); err == nil {
			order, files = []string{path.Join(d, name)}, map[string]string{path.Join(d, name): string(b)}
			break
		}
	}
	if files == nil {
		return nil, nil
	}
	dropIns := map[string]string{} // name -> path
	for _, d := range slices.Backward(unitDirs) {
		list, err := h.fs.readDir(path.Join(d, name+".d"))
		if err != nil {
			continue
		}
		for _, e := range list {
			if strings.HasSuffix(e.Name(), ".conf") {
				dropIns[e.Name()] = path.Join(d, name+".d", e.Name())
			}
		}
	}
	for _, n := range sorted(dropIns) {
		b, err := h.fs.read(dropIns[n])
		if err != nil {
			continue
		}
		order = append(order, dropIns[n])
		files[dropIns[n]] = string(b)
	}
	return order, files
}

// load reads a unit, with the state that it has; nil: no such unit.
func (h *Host) load(name string) *unit {
	order, files := h.unitFiles(name)
	if files == nil {
		return nil
	}
	u := &unit{active: "inactive", result: "success"}
	h.mu.Lock()
	defer h.mu.Unlock()
	if old := h.units[name]; old != nil {
		*u = *old
	}
	u.files, u.conf = files, unitConf{kind: "simple"}
	for _, f := range order {
		u.conf.read(files[f])
	}
	return u
}

// unit returns what systemd holds of a unit. Only units that run, failed or are
// enabled are held; others are read again.
func (h *Host) unit(name string) *unit {
	h.mu.Lock()
	u := h.units[name]
	h.mu.Unlock()
	if u == nil {
		u = h.load(name)
	}
	return u
}

func (h *Host) reload() {
	h.mu.Lock()
	names := sorted(h.units)
	h.mu.Unlock()
	for _, n := range append(names, h.enabled()...) {
		u := h.load(n)
		h.mu.Lock()
		old := h.units[n]
		switch {
		case u != nil:
			h.units[n] = u
		case old != nil && old.active != "active":
			delete(h.units, n)
		}
		h.mu.Unlock()
	}
}

// stale reports whether files of a unit changed since systemd read them.
func (h *Host) stale(name string, u *unit) bool {
	_, now := h.unitFiles(name)
	if len(now) != len(u.files) {
		return true
	}
	for p, text := range now {
		if was, ok := u.files[p]; !ok || was != text {
			return true
		}
	}
	return false
}

// read merges one file: later values add to earlier ones, empty ones reset.
func (c *unitConf) read(text string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	section := ""
	for _, l := range strings.Split(text, "\n") {
		l = strings.TrimSpace(l)
		if l == "" || l[0] == '#' || l[0] == ';' {
			continue
		}
		if l[0] == '[' {
			section = l
			continue
		}
		k, v, ok := strings.Cut(l, "=")
		if !ok || section == "" {
			c.malformed = l
			continue
		}
		k, v = strings.TrimSpace(k), strings.TrimSpace(v)
		switch section + k {
		case "[Service]ExecStart":
			c.exec = addTo(c.exec, v)
		case "[Service]ExecStartPre":
			c.before = addTo(c.before, v)
		case "[Service]ExecReload":
			c.again = addTo(c.again, v)
		case "[Service]RuntimeDirectory":
			c.dirs = append(c.dirs, strings.Fields(v)...)
		case "[Service]Environment":
			if v == "" {
				c.env = nil
			}
			c.env = append(c.env, words(v)...)
		case "[Service]EnvironmentFile":
			c.envFiles = addTo(c.envFiles, v)
		case "[Service]Type":
			c.kind = v
		case "[Service]RemainAfterExit":
			c.remain = v == "yes" || v == "true"
		case "[Install]WantedBy", "[Install]RequiredBy":
			c.wantedBy = append(c.wantedBy, strings.Fields(v)...)
		}
	}
}

func addTo(list []string, v string) []string {
	if v == "" {
		return nil
	}
	return append(list, v)
}

// words splits at spaces, with single and double quotes.
func words(s string) (list []string) {
	var b strings.Builder
	quoted := rune(0)
	for _, r := range s + " " {
		switch {
		case quoted == 0 && (r == '"' || r == '\''):
			quoted = r
		case r == quoted:
			quoted = 0
		case quoted == 0 && r == ' ':
			if b.Len() > 0 {
				list = append(list, b.String())
			}
			b.Reset()
		default:
			b.WriteRune(r)
		}
	}
	return list
}

// enabled lists the units that start at boot, in order.
func (h *Host) enabled() (names []string) {
	h.fs.each("/etc/systemd/system", func(p string, i info) {
		if strings.HasSuffix(path.Dir(p), ".wants") && i.mode&fs.ModeSymlink != 0 {
			names = append(names, i.name)
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

func (h *Host) enable(name string, u *unit) {
	from := ""
	for p := range u.files {
		if path.Base(p) == name {
			from = p
		}
	}
	for _, w := range u.conf.wantedBy {
		at := path.Join("/etc/systemd/system", w+".wants", name)
		if h.fs.exists(at) {
			continue
		}
		if err := h.fs.mkdirAll(path.Dir(at), 0o755); err == nil && h.fs.symlink(from, at) == nil {
			h.changed("enable %s", name)
		}
	}
	h.reload()
}

func (h *Host) disable(name string) {
	h.fs.each("/etc/systemd/system", func(p string, i info) {
		if strings.HasSuffix(path.Dir(p), ".wants") && i.name == name && h.fs.remove(p, false) == nil {
			h.changed("disable %s", name)
			_ = h.fs.remove(path.Dir(p), false) // systemctl does so where it is empty
		}
	})
	h.reload()
}

// start runs a unit; the error says why it failed. The caller holds the lock of
// systemd, which is free while the hook runs: it may use the host in any way.
func (h *Host) start(name string, u *unit) error {
	h.mu.Lock()
	h.units[name] = u
	h.lastPID++
	pid := 1000 + h.lastPID
	h.mu.Unlock()
	h.changed("start %s", name)
	err := h.runnable(u)
	if err == nil {
		for _, d := range u.conf.dirs {
			h.must(h.fs.mkdirAll("/run/"+d, 0o755))
		}
		err = h.control(u, u.conf.before)
	}
	if hook := h.OnStart[name]; err == nil && hook != nil {
		h.systemd.Unlock()
		err = hook(h)
		h.systemd.Lock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.units[name]; now != nil { // read again meanwhile
		u = now
	}
	if err != nil {
		u.active, u.result, u.pid, u.ended = "failed", "exit-code", 0, true
		h.tell("fail " + name)
		h.journal[name] = append(h.journal[name], err.Error())
		return err
	}
	u.active, u.result, u.pid = "active", "success", 0
	switch {
	case !strings.HasSuffix(name, ".service"):
	case u.conf.kind == "oneshot":
		u.ended = true
		if !u.conf.remain {
			u.active = "inactive"
		}
	default:
		u.pid = pid
		command := u.conf.exec[len(u.conf.exec)-1]
		exe, args, env := firstWord(command), words(command)[1:], append(h.environment(u), u.conf.env...)
		if u.conf.kind == "" || u.conf.kind == "simple" { // systemd has not waited for the program
			h.forked[pid] = func() { h.process(pid, exe, args, env) }
			h.process(pid, "/usr/lib/systemd/systemd", nil, []string{"LANG=C.UTF-8"})
			break
		}
		h.process(pid, exe, args, env)
	}
	h.journal[name] = append(h.journal[name], "Started "+name+".")
	return nil
}

func firstWord(s string) string { return strings.TrimLeft(strings.Fields(s)[0], "-@:+!") }

// runnable checks whether what the unit runs is there.
func (h *Host) runnable(u *unit) error {
	if u.conf.malformed != "" {
		return fmt.Errorf("assignment outside of section or without '=': %q", u.conf.malformed)
	}
	for p := range u.files {
		if ext := path.Ext(p); ext != ".service" && ext != ".conf" {
			return nil
		}
	}
	if len(u.conf.exec) == 0 {
		return fmt.Errorf("service has no ExecStart= setting, refusing")
	}
	if len(u.conf.exec) > 1 && u.conf.kind != "oneshot" {
		return fmt.Errorf("service has more than one ExecStart= setting, refusing")
	}
	for _, e := range u.conf.exec {
		i, err := h.fs.stat(firstWord(e), true)
		if err != nil || !i.mode.IsRegular() || i.mode.Perm()&0o111 == 0 {
			return fmt.Errorf("unable to locate executable '%s': status=203/EXEC", firstWord(e))
		}
	}
	for _, f := range u.conf.envFiles {
		if !strings.HasPrefix(f, "-") && !h.fs.exists(f) {
			return fmt.Errorf("failed to load environment files: %s", f)
		}
	}
	return nil
}

func (h *Host) environment(u *unit) (env []string) {
	for _, f := range u.conf.envFiles {
		b, err := h.fs.read(strings.TrimPrefix(f, "-"))
		if err != nil {
			continue
		}
		for _, l := range splitLines(b) {
			if l != "" && l[0] != '#' {
				env = append(env, l)
			}
		}
	}
	return env
}

func (h *Host) process(pid int, exe string, args, env []string) {
	dir := fmt.Sprintf("/proc/%d", pid)
	h.put(dir+"/cmdline", strings.Join(append(append([]string{exe}, args...), ""), "\x00"), 0o444)
	h.put(dir+"/environ", strings.Join(append(env, ""), "\x00"), 0o400)
	name := path.Base(exe)
	h.put(dir+"/comm", name[:min(len(name), 15)]+"\n", 0o444)
	_ = h.fs.remove(dir+"/exe", false)
	if h.fs.exists(exe) {
		h.must(h.fs.hardLink(exe, dir+"/exe")) // what runs stays what it is, whatever its path has by now
	} else {
		h.put(dir+"/exe", "", 0o755)
	}
}

// Program is what the process of a service runs: "" where there is none.
func (h *Host) Program(service string) string {
	u := h.unit(unitName(service))
	if u == nil {
		return ""
	}
	h.mu.Lock()
	pid := u.pid
	if exec := h.forked[pid]; exec != nil {
		exec()
		delete(h.forked, pid)
	}
	h.mu.Unlock()
	text, _ := h.Get(fmt.Sprintf("/proc/%d/exe", pid))
	return text
}

// sleep lets a moment pass: what systemd has forked becomes the program that it is to run.
func sleep(c *Call) int {
	c.passes()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, exec := range c.forked {
		exec()
	}
	clear(c.forked)
	return 0
}

func (h *Host) stop(name string, u *unit) {
	h.mu.Lock()
	active := u.active == "active"
	h.mu.Unlock()
	if hook := h.OnStop[name]; hook != nil && active {
		h.systemd.Unlock()
		hook(h)
		h.systemd.Lock()
	}
	held := slices.Contains(h.enabled(), name)
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.units[name]; now != nil { // read again meanwhile
		u = now
	}
	if u.active == "active" {
		h.logged("stop " + name)
		h.journal[name] = append(h.journal[name], "Stopped "+name+".")
	}
	if u.pid > 0 {
		h.fs.drop(fmt.Sprintf("/proc/%d", u.pid))
		h.fs.drop(fmt.Sprintf("/proc/%d", u.worker))
		delete(h.forked, u.pid)
	}
	for _, d := range u.conf.dirs {
		h.fs.drop("/run/" + d)
	}
	u.active, u.result, u.pid, u.worker = "inactive", "success", 0, 0
	if !held {
		delete(h.units, name)
	}
}
