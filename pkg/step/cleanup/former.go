package cleanup

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
)

// root finds the directory of a container runtime's images and containers: the one that its configuration names, as long as it has the mark of one. Else it is a name that nothing has.
const root = `root=$(sed -n 's/^ *"*[data-]*root"* *[:=] *"\(.*\)",*$/\1/p' %[1]s 2>/dev/null | head -n 1)
if [ -z "$root" ] || [ ! -e "$root/%[2]s" ]; then root=/nonexistent; fi
`

// Former ends a container runtime that gives way to another one, with all that still runs there, and removes its images and containers. Its programs and
// configuration go with all else that is no longer needed. The kubelet starts again with the other one.
func Former(r plugin.Runtime) []step.Step {
	units, shims := strings.Join(r.Units(), " "), strings.ReplaceAll(shims, "RUNTIME", r.Unit)
	find := fmt.Sprintf(root, r.Config, r.Mark)
	noMounts, unmount := unmounted(append([]string{`"$root"/*`, "/run/netns/cni-*"}, r.Left.Mounts...))
	noFiles, remove := emptied(r.Left.Paths, r.Left.Empty)
	unfiltered, unfilter := "true", ""
	if r.Left.Chains != nil {
		unfiltered, unfilter = filters(plugin.Left{Chains: r.Left.Chains, Tables: r.Left.Tables})
	}
	return []step.Step{
		step.With(step.Command{
			What:   "no containers of " + r.Name,
			Unless: shims + stopped(r, " && ") + ` && [ -z "$(shims)" ]`,
			Run: shims + `systemctl stop kubelet || true
crictl stop --timeout 30 $(crictl ps -q) >/dev/null 2>&1 || true
crictl rmp -fa >/dev/null 2>&1 || true
systemctl disable --now ` + units + ` >/dev/null 2>&1 || true
while p=$(shims); [ -n "$p" ]; do kill -KILL $p 2>/dev/null || true; done`,
		}, step.Options{Timeout: 10 * time.Minute}),
		groups("no control groups of " + r.Name), // those of a runtime that has crashed have nobody else to end them
		step.With(step.Command{
			What:   "no data of " + r.Name,
			Unless: find + `[ $root = /nonexistent ] && ` + noMounts + " && " + unfiltered + " && (\n" + noFiles + ")",
			Run: find + unmount + "\n" + unfilter + "\n" + left + oneSystem + `if [ -d "$root" ]; then left "$root" | while IFS= read -r e; do if [ "$e" != "$root/` + r.Mark + `" ]; then rm -rf $one "$e"; fi; done
rm -rf $one "$root/` + r.Mark + `"; rmdir "$root" 2>/dev/null || true; fi # the mark last: so it is found again
` + remove,
		}, step.Options{Timeout: 10 * time.Minute}),
	}
}
