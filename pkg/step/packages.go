package step

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Packages ensures operating system packages, with the host's own package
// manager, from its own repositories or from the store.
type Packages struct {
	Manager string // apt, dnf or yum
	Names   []string
	Leaves  []string `json:",omitempty"` // paths that their programs make and nobody removes: as before again on delete

	From *resource.Repository `json:",omitempty"` // nil: the host's own repositories
}

func (p Packages) String() string { return "packages" }

// Owns is the packages, but those that come along, and the paths that they leave.
func (p Packages) Owns() (keys []string, err error) {
	for _, n := range p.Names {
		keys = append(keys, "package "+n)
	}
	for _, l := range p.Leaves {
		keys = append(keys, "path "+l)
	}
	return keys, nil
}

// Each lists what is installed, one name a line; the first of the names given.
const (
	dpkgList = `dpkg-query -W -f '${db:Status-Status} ${Package}\n' %s 2>/dev/null | grep '^installed ' | cut -d' ' -f2`
	rpmList  = `rpm -qa --qf '%{NAME}\n'`
)

// rpmHave prints those of the names that are installed, also under another name,
// as iptables is iptables-nft from version 9 of Red Hat's family on.
const rpmHave = `for n in %s; do if rpm -q --whatprovides "$n" >/dev/null 2>&1; then echo "$n"; fi; done`

// list is the script that lists what is installed, of all packages or of some.
func (p Packages) list(names ...string) string {
	switch {
	case p.Manager == "apt":
		return fmt.Sprintf(dpkgList, runner.Quote(names...))
	case names == nil:
		return rpmList
	}
	return fmt.Sprintf(rpmHave, runner.Quote(names...))
}

// Precheck asks the package database.
func (p Packages) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	missing, err := p.Missing(ctx, r)
	if err != nil || missing == nil {
		return nil, err
	}
	return &Change{
		Diff: "+ packages " + strings.Join(missing, " "),
		Run:  func(ctx context.Context) error { return p.install(ctx, r, missing) },
	}, nil
}

// Missing returns those of the packages that the host has not installed.
func (p Packages) Missing(ctx context.Context, r *runner.Runner) (missing []string, err error) {
	if len(p.Names) == 0 {
		return nil, nil
	}
	out, err := r.Sh(ctx, p.list(p.Names...))
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	have := strings.Fields(out)
	for _, n := range p.Names {
		if !slices.Contains(have, n) {
			missing = append(missing, n)
		}
	}
	return missing, nil
}

// left notes a path, and those of its directories that are not there yet.
const left = `above() { d=${1%/*}; if [ -n "$d" ] && [ ! -d "$d" ]; then above "$d"; note "dir ${1%/*}"; fi; }
leaves() { above "$1"; keep "$1"; }
`

// dnfPlan prints the packages that dnf and yum list under "Installing", in a column that
// begins after one blank.
const dnfPlan = `while IFS= read -r l; do case "$l" in Installing*) on=y;; [A-Z]*) on=;; "  "*|"") ;; " "*) if [ -n "$on" ]; then l=${l# }; echo "${l%% *}"; fi;; esac; done`

// add notes all packages that will come along before any does, so that they can all go
// again, whenever the power is cut; and, should the plan have been misread, those that came.
// What was there before is never noted, nor what others install meanwhile. What apt
// removes to make room, as for chrony other time services, is noted as lost, unless it is ours.
const add = `list() { %[1]s; }; was=$(list); rc=0; N='
'
new() { while read -r n; do case "$N$was$N" in *"$N$n$N"*) ;; *) echo "$n";; esac; done; }
foresee() { out=$(%[2]s) && later=y && for n in $(printf '%%s\n' "$out" | grep '^Remv ' | cut -d' ' -f2); do noted "package $n" || note "lost $n" || return 1; done &&
for n in $(printf '%%s\n' "$out" | %[3]s | new); do note "package $n" || return 1; done && settle; }
{ foresee || { %[4]s && foresee; }; } >&2 && { %[5]s || { %[4]s && foresee && %[5]s; }; } >&2 || rc=$?
for n in $(list | new); do note "package $n"; done; %[6]s; exit $rc`

// manager is how the package manager of a host does what is asked of it.
type manager struct {
	plan, read string // what it would do, and the names of the packages in that
	refresh    string // reads again what there is
	install    string
	after      string // at the end, whatever that is
}

// manager returns how to install packages. What comes from the store is asked of nobody else.
func (p Packages) manager(names string) manager {
	options, after := "", ":"
	if p.From != nil {
		options, after = p.storeOptions(), clearStore
	}
	if p.Manager != "apt" {
		dnf := p.Manager + options
		return manager{"LC_ALL=C " + dnf + " --assumeno install " + names + " || true", dnfPlan, "false", dnf + " -q -y install " + names, after}
	}
	get := "DEBIAN_FRONTEND=noninteractive apt-get" + options + " -q -o DPkg::Lock::Timeout=300"
	return manager{
		"apt-get" + options + " -s install --no-install-recommends " + names, "grep '^Inst ' | cut -d' ' -f2",
		get + " update", get + " install -y --no-install-recommends " + names, after,
	}
}

func (p Packages) install(ctx context.Context, r *runner.Runner, missing []string) error {
	names, advice := runner.Quote(missing...), "check the host's package repositories and its network (try the same command there), or install the packages by hand"
	m := p.manager(names)
	if p.From != nil {
		advice = "import newer packages: 'kubexm download --refresh --os " + p.From.System + " --export' on a machine with internet, then 'kubexm import'; or install them by hand"
		if err := p.bring(ctx, r, m); err != nil {
			return fault.Advise(fmt.Errorf("bringing %s from the store: %w", names, err), advice)
		}
	}
	leaves := ""
	if p.Leaves != nil {
		leaves = left
	}
	for _, path := range p.Leaves {
		leaves += "leaves " + runner.Quote(path) + "\n"
	}
	if _, err := r.Change(ctx, leaves+fmt.Sprintf(add, p.list(), m.plan, m.read, m.refresh, m.install, m.after)); err != nil {
		return fault.Advise(fmt.Errorf("installing %s: %w", names, err), advice)
	}
	return nil
}
