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

// script has how the package manager of a host installs packages.
func (p Packages) script(names string) string {
	if p.Manager == "apt" {
		return p.does("install --no-install-recommends "+names, "")
	}
	return p.does("install "+names, "")
}

// does has how the package manager of a host does what is asked of it, where a condition holds. What comes from the store is asked of nobody else.
// NEEDRESTART_SUSPEND keeps needrestart of Ubuntu from restarting services, among them the kubelet, whenever a package comes.
func (p Packages) does(what, where string) string {
	options, after := "", ":"
	if p.From != nil {
		options, after = p.storeOptions(), clearStore
	}
	plan, read, refresh, get := "", "dnf_plan", "false", ""
	if p.Manager == "apt" {
		apt := "DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get" + options + " -q -o DPkg::Lock::Timeout=300"
		plan, read = "apt-get"+options+" -s "+what, "grep '^Inst ' | cut -d' ' -f2"
		refresh, get = apt+" update", apt+" -y "+what
	} else {
		dnf := p.Manager + options
		plan, get = "LC_ALL=C "+dnf+" --assumeno "+what+" || true", dnf+" -q -y "+what
	}
	return runner.Script(scripts, "packages") + fmt.Sprintf("list() { %s; }\nplan() { %s%s; }\nnames() { %s; }\nrefresh() { %s; }\nget() { %[2]s%[6]s; }\nafter() { %s; }\n",
		p.list(), where, plan, read, refresh, get, after)
}

func (p Packages) install(ctx context.Context, r *runner.Runner, missing []string) error {
	names, advice := runner.Quote(missing...), "check the host's package repositories and its network (try the same command there), or install the packages by hand"
	script := p.script(names)
	if p.From != nil {
		advice = "import newer packages: 'kubexm download --refresh --os " + p.From.System + " --export' on a machine with internet, then 'kubexm import'; or install them by hand"
		if err := p.bring(ctx, r, script); err != nil {
			return fault.Advise(fmt.Errorf("bringing %s from the store: %w", names, err), advice)
		}
	}
	run := ""
	for _, path := range p.Leaves {
		run += "leaves " + runner.Quote(path) + "\n"
	}
	if _, err := r.ChangeWith(ctx, script, run+"install_packages"); err != nil {
		return fault.Advise(fmt.Errorf("installing %s: %w", names, err), advice)
	}
	return nil
}
