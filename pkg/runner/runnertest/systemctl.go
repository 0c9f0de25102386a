package runnertest

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

func systemd() map[string]Command {
	return map[string]Command{"systemctl": systemctl, "journalctl": journalctl, "systemd-run": systemdRun, "systemd-analyze": systemdAnalyze}
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func systemctl(c *Call) int {
	c.systemd.Lock()
	defer c.systemd.Unlock()
	verb := ""
	var names, props []string
	now, value, quiet := false, false, false
	for i := 1; i < len(c.Args); i++ {
		switch a := c.Args[i]; {
		case a == "-q" || a == "--quiet":
			quiet = true
		case a == "--no-pager" || a == "--no-block" || a == "--no-reload":
		case a == "--now":
			now = true
		case a == "--value" && c.Systemd >= 230:
			value = true
		case a == "-p" && i+1 < len(c.Args):
			i++
			props = append(props, strings.Split(c.Args[i], ",")...)
		case strings.HasPrefix(a, "--property="):
			props = append(props, strings.Split(strings.TrimPrefix(a, "--property="), ",")...)
		case strings.HasPrefix(a, "-"):
			return c.Unknown()
		case verb == "":
			verb = a
		default:
			names = append(names, unitName(a))
		}
	}
	switch {
	case verb == "daemon-reload" && len(names) == 0:
		c.reload()
		c.changed("daemon-reload")
		return 0
	case verb == "is-system-running" && len(names) == 0:
		c.Printf("running\n")
		return 0
	case verb == "show" && len(props) > 0 && len(names) == 1:
		return c.show(names[0], props, value)
	case len(names) == 0:
		return c.Unknown()
	}
	if quiet && strings.HasPrefix(verb, "is-") {
		c.Stdout = io.Discard
	}
	status := 0
	for _, n := range names {
		if s := c.act(verb, n, now); s != 0 {
			status = s
		}
	}
	return status
}

// act does one verb to one unit.
func (c *Call) act(verb, name string, now bool) int {
	u := c.unit(name)
	missing := u == nil
	switch verb {
	case "is-active", "is-failed":
		state := "inactive"
		if !missing {
			state = c.state(u)
		}
		c.Printf("%s\n", state)
		if state != strings.TrimPrefix(verb, "is-") {
			return 3
		}
		return 0
	case "is-enabled":
		state := c.fileState(name, u)
		if missing {
			return c.Failf(1, "Failed to get unit file state for %s: No such file or directory", name)
		}
		c.Printf("%s\n", state)
		if state == "disabled" {
			return 1
		}
		return 0
	case "enable", "disable", "mask", "unmask":
		return c.actFile(verb, name, u, now)
	case "start", "restart", "try-restart", "reload-or-restart", "reload":
		if missing {
			return c.Failf(5, "Failed to %s %s: Unit %s not found.", verb, name, name)
		}
		return c.run(verb, name, u)
	case "stop":
		if missing {
			return c.Failf(5, "Failed to stop %s: Unit %s not loaded.", name, name)
		}
		c.Host.stop(name, u)
		return 0
	case "reset-failed":
		if missing {
			return c.Failf(1, "Failed to reset failed state of unit %s: Unit %s not loaded.", name, name)
		}
		if c.state(u) == "failed" {
			c.Host.stop(name, u)
		}
		return 0
	}
	return c.Unknown()
}

func (h *Host) state(u *unit) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return u.active
}

func (c *Call) actFile(verb, name string, u *unit, now bool) int {
	if _, files := c.unitFiles(name); files == nil {
		return c.Failf(1, "Failed to %s unit: Unit file %s does not exist.", verb, name)
	}
	at := path.Join("/etc/systemd/system", name)
	switch verb {
	case "enable":
		if c.masked(name) {
			return c.Failf(1, "Failed to enable unit: Unit file %s is masked.", at)
		}
		if len(u.conf.wantedBy) == 0 {
			return 0 // systemctl only warns
		}
		c.Host.enable(name, u)
		if now {
			return c.run("start", name, c.unit(name))
		}
	case "disable":
		c.Host.disable(name)
		if now {
			c.Host.stop(name, c.unit(name))
		}
	case "mask":
		if c.fs.exists(at) && !c.masked(name) {
			return c.Failf(1, "Failed to mask unit: File %s already exists.", at)
		}
		if err := c.fs.symlink("/dev/null", at); err != nil {
			return c.fail(err)
		}
		c.changed("mask %s", name)
		if now {
			c.Host.stop(name, u)
		}
		c.reload()
	case "unmask":
		if c.masked(name) {
			if err := c.fs.remove(at, false); err != nil {
				return c.fail(err)
			}
			c.changed("unmask %s", name)
			c.reload()
		}
	}
	return 0
}

func (h *Host) masked(name string) bool {
	i, err := h.fs.stat(path.Join("/etc/systemd/system", name), false)
	return err == nil && i.link == "/dev/null"
}

func (c *Call) run(verb, name string, u *unit) int {
	active := c.state(u) == "active"
	if verb == "start" && active || verb == "try-restart" && !active {
		return 0
	}
	if verb == "reload" || verb == "reload-or-restart" && active && len(u.conf.again) > 0 {
		return c.reloadUnit(name, u)
	}
	if c.masked(name) {
		return c.Failf(1, "Failed to %s %s: Unit %s is masked.", verb, name, name)
	}
	if active {
		c.Host.stop(name, u)
	}
	if err := c.Host.start(name, u); err != nil {
		return c.Failf(1, "Job for %s failed because the control process exited with error code: %v", name, err)
	}
	return 0
}

// fileState is the UnitFileState of systemctl show.
func (h *Host) fileState(name string, u *unit) string {
	switch {
	case u == nil:
		return ""
	case h.masked(name):
		return "masked"
	case slices.Contains(h.enabled(), name):
		return "enabled"
	case len(u.conf.wantedBy) == 0:
		return "static"
	}
	return "disabled"
}

func (c *Call) show(name string, props []string, value bool) int {
	u := c.unit(name)
	have := map[string]string{
		"ActiveState": "inactive", "SubState": "dead", "UnitFileState": c.fileState(name, u), "NeedDaemonReload": "no",
		"MainPID": "0", "LoadState": "not-found", "Result": "success", "FragmentPath": "", "ExecMainStatus": "0", "Type": "", "NRestarts": "0", "Environment": "", "ExecMainStartTimestampMonotonic": "",
		"NextElapseUSecRealtime": "", "ExecMainExitTimestamp": "",
	}
	if u != nil {
		stale := c.stale(name, u)
		c.mu.Lock()
		have["ActiveState"], have["LoadState"], have["Result"], have["Type"] = u.active, "loaded", u.result, u.conf.kind
		have["MainPID"], have["Environment"] = strconv.Itoa(u.pid), strings.Join(u.conf.env, " ")
		if u.active == "active" {
			have["SubState"] = "running"
		}
		if u.ended {
			have["ExecMainExitTimestamp"] = "Thu 2026-11-26 02:00:05 UTC"
		}
		if path.Ext(name) == ".timer" && u.active == "active" {
			have["NextElapseUSecRealtime"] = "Fri 2026-11-27 02:00:00 UTC"
		}
		if stale {
			have["NeedDaemonReload"] = "yes"
		}
		for p := range u.files {
			if path.Base(p) == name {
				have["FragmentPath"] = p
			}
		}
		c.mu.Unlock()
		if c.masked(name) {
			have["LoadState"] = "masked"
		}
	}
	for _, k := range sorted(have) { // systemd has an order of its own, too
		switch {
		case !slices.Contains(props, k):
		case value:
			c.Printf("%s\n", have[k])
		default:
			c.Printf("%s=%s\n", k, have[k])
		}
	}
	for _, p := range props {
		if _, ok := have[p]; !ok {
			return c.Unknown()
		}
	}
	return 0
}

// systemdAnalyze knows times since version 236.
func systemdAnalyze(c *Call) int {
	switch {
	case len(c.Args) == 2 && c.Args[1] == "--help":
		if c.Systemd >= 236 {
			c.Printf("  calendar SPEC...         Validate repetitive calendar time\n")
		}
		return 0
	case len(c.Args) == 3 && c.Args[1] == "calendar" && c.Systemd >= 236:
		if strings.Contains(c.Args[2], "Foo") {
			return c.Failf(1, "Failed to parse calendar expression '%s': Invalid argument", c.Args[2])
		}
		c.Printf("Normalized form: %s\n", c.Args[2])
		return 0
	}
	return c.Unknown()
}

func journalctl(c *Call) int {
	o, rest, ok := c.opts("q", "onu", "--no-pager")
	n, err := strconv.Atoi(o["n"])
	if len(rest) == 1 && o["u"] == "" { // what its processes have printed, and not what systemd says of it
		unit, field := strings.CutPrefix(rest[0], "_SYSTEMD_UNIT=")
		if o["u"], rest = unit, nil; !field {
			return c.Unknown()
		}
	}
	if !ok || err != nil || len(rest) > 0 || o["o"] != "cat" {
		return c.Unknown()
	}
	c.mu.Lock()
	j := c.journal[unitName(o["u"])]
	c.mu.Unlock()
	c.lines(j[max(0, len(j)-n):])
	return 0
}

// Unit describes a unit as "active enabled".
func (h *Host) Unit(name string) string {
	u := h.unit(unitName(name))
	if u == nil {
		return "missing"
	}
	state := h.fileState(unitName(name), u)
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("%s %s", u.active, state)
}

// Start starts a unit as systemctl does.
func (h *Host) Start(name string) error {
	h.systemd.Lock()
	defer h.systemd.Unlock()
	u := h.unit(unitName(name))
	if u == nil {
		return fmt.Errorf("unit %s not found", unitName(name))
	}
	return h.start(unitName(name), u)
}
