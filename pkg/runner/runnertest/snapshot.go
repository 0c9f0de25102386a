package runnertest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Snapshot describes the host as text: files with permissions, owners and
// content, kernel parameters, units, packages, modules, mounts and swaps. Hosts in one state have one Snapshot: it leaves out times and process
// numbers, and sorts kubexm's ledger.
func (h *Host) Snapshot() string {
	var b strings.Builder
	h.fs.each("/", func(p string, i info) { describe(&b, p, i) })
	for _, k := range slices.DeleteFunc(h.paths("/proc/sys"), func(p string) bool { return p == bootIDFile }) {
		text, _ := h.Get(k)
		fmt.Fprintf(&b, "sysctl %s = %s\n", strings.TrimPrefix(k, "/proc/sys/"), strings.Join(strings.Fields(text), " "))
	}
	h.mu.Lock()
	names := sorted(h.units)
	h.mu.Unlock()
	for _, n := range names {
		fmt.Fprintf(&b, "unit %s %s\n", n, h.Unit(n))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.mounts {
		fmt.Fprintf(&b, "mount %s\n", strings.Join(m[:], " "))
	}
	list := func(title string, names []string) { fmt.Fprintf(&b, "%s: %s\n", title, strings.Join(names, " ")) }
	list("packages", sorted(h.packages))
	list("modules", slices.Sorted(slices.Values(h.loaded)))
	list("swaps", h.swaps)
	for _, name := range sorted(h.addrs) {
		fmt.Fprintf(&b, "interface %s %s\n", name, h.addrs[name])
	}
	for _, t := range sorted(h.rules) {
		if len(h.rules[t]) > 0 {
			fmt.Fprintf(&b, "rules %s\n    %s\n", t, strings.Join(h.rules[t], "\n    "))
		}
	}
	return b.String()
}

// shown is the size up to which the text of a file is in the Snapshot.
const shown = 4096

const ledger = runner.StateDir + "/ledger"

func describe(b *strings.Builder, p string, i info) {
	if strings.HasPrefix(p, "/proc/") || strings.HasPrefix(p, "/sys/class/net/") || strings.HasPrefix(p, runner.StateDir+"/sums") || strings.HasPrefix(p, "/run/kubexm/lock") {
		return
	}
	fmt.Fprintf(b, "%s %s %s:%s", p, i.mode, i.owner, i.group)
	switch {
	case i.mode&fs.ModeSymlink != 0:
		fmt.Fprintf(b, " -> %s\n", i.link)
		return
	case !i.mode.IsRegular() || i.size == 0:
		b.WriteString("\n")
		return
	}
	if i.size > shown && p != ledger && p != runner.InventoryPath || !utf8.Valid(i.data) {
		fmt.Fprintf(b, " sha256:%.12x\n", sha256.Sum256(i.data))
		return
	}
	b.WriteString("\n")
	lines := splitLines(i.data)
	if p == ledger {
		slices.Sort(lines)
		lines = slices.Compact(lines)
	}
	for _, l := range lines {
		fmt.Fprintf(b, "    %s\n", l)
	}
}

func (h *Host) paths(below string) (list []string) {
	h.fs.each(below, func(p string, i info) {
		if !i.IsDir() {
			list = append(list, p)
		}
	})
	return list
}
