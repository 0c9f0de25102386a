package runnertest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// bootTime is how long a host takes to stop and to start, where nothing else is said.
const bootTime = 20 * time.Second

// Restarts is how often the host was restarted by itself, as reboot does.
func (h *Host) Restarts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restarts
}

// systemdRun runs a script apart from who asks for it. The fake knows the one that restarts the host.
func systemdRun(c *Call) int {
	if strings.Join(c.Args[1:], " ") != "--quiet sh -c sleep 1; exec systemctl reboot" {
		return c.Unknown()
	}
	c.changed("reboot")
	time.AfterFunc(time.Second, c.Host.restart)
	return 0
}

// restart stops what runs, cuts all connections, and starts the host again after a while, unless BootTime is negative.
func (h *Host) restart() {
	h.mu.Lock()
	h.restarts++
	h.mu.Unlock()
	h.systemd.Lock()
	for _, name := range slices.Backward(h.active()) {
		h.stop(name, h.unit(name))
	}
	h.systemd.Unlock()
	h.mu.Lock()
	pods := sorted(h.static)
	h.mu.Unlock()
	for _, name := range slices.Backward(pods) {
		h.endPod(name)
	}
	h.SetDown(true)
	if h.OnDown != nil {
		h.OnDown()
	}
	switch {
	case h.BootTime == 0:
		time.AfterFunc(bootTime, h.again)
	case h.BootTime > 0:
		time.AfterFunc(h.BootTime, h.again)
	}
}

// active lists the units that run.
func (h *Host) active() (names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range sorted(h.units) {
		if h.units[n].active == "active" {
			names = append(names, n)
		}
	}
	return names
}

// bootIDFile tells one boot from another.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// begin gives the host another boot, with the newest kernel that is installed.
func (h *Host) begin() {
	h.boots++
	h.put(bootIDFile, fmt.Sprintf("%08x-0000-4000-8000-%012x\n", uint32(fnv(h.Name)), h.boots), 0o444)
	if all := h.kernels(); len(all) > 0 {
		h.Kernel = all[len(all)-1]
	}
}
