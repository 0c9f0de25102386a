package runnertest

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/connector"
)

// control runs further commands of a unit, which must be there. Of programs that the fake knows nothing else of this is all. The caller
// holds the lock of systemd.
func (h *Host) control(u *unit, lines []string) error {
	for _, l := range lines {
		script, is := strings.CutPrefix(l, "/bin/sh -c '")
		if !is {
			if i, err := h.fs.stat(firstWord(l), true); err != nil || i.mode.Perm()&0o111 == 0 {
				return fmt.Errorf("unable to locate executable '%s': status=203/EXEC", firstWord(l))
			}
			if run, _ := h.command(firstWord(l)); run == nil {
				continue
			}
			script = l
		}
		env := fmt.Sprintf("MAINPID=%d; export MAINPID", u.pid)
		for _, v := range append(h.environment(u), u.conf.env...) {
			name, value, _ := strings.Cut(v, "=")
			env += "\n" + name + "=" + strings.TrimSpace(quote([]string{value})) + "; export " + name
		}
		script = strings.ReplaceAll(strings.TrimSuffix(script, "'"), "$$", "$")
		h.systemd.Unlock()
		err := h.shell(context.Background(), connector.Cmd{Line: env + "\n" + script})
		h.systemd.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// reloadUnit has a unit that runs read its files again.
func (c *Call) reloadUnit(name string, u *unit) int {
	switch {
	case c.state(u) != "active":
		return c.Failf(1, "%s is not active, cannot reload.", name)
	case len(u.conf.again) == 0:
		return c.Failf(1, "Failed to reload %s: Job type reload is not applicable for unit %s.", name, name)
	}
	if err := c.control(u, u.conf.again); err != nil {
		c.mu.Lock()
		c.journal[name] = append(c.journal[name], err.Error())
		c.mu.Unlock()
		return c.Failf(1, "Job for %s failed because the control process exited with error code: %v", name, err)
	}
	c.changed("reload %s", name)
	return 0
}

// signal tells the main process of a unit to read its files again, for which it starts another worker.
func (c *Call) signal(pid string) int {
	name, n := "", 0
	c.mu.Lock()
	for _, k := range sorted(c.units) {
		if u := c.units[k]; u.pid > 0 && strconv.Itoa(u.pid) == pid {
			name, n = k, u.pid
		}
	}
	c.mu.Unlock()
	if name == "" {
		return c.Failf(1, "(%s) - No such process", pid)
	}
	if hook := c.OnReload[name]; hook != nil {
		if err := hook(c.Host); err != nil { // it goes on as before
			c.mu.Lock()
			defer c.mu.Unlock()
			c.journal[name] = append(c.journal[name], err.Error())
			return 0
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.units[name]
	c.fs.drop(fmt.Sprintf("/proc/%d", u.worker))
	c.lastPID++
	u.worker = 1000 + c.lastPID
	c.put(fmt.Sprintf("/proc/%d/status", u.worker), fmt.Sprintf("Name:\tworker\nPPid:\t%d\n", n), 0o444)
	return 0
}
