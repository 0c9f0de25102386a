package step

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Newest are installed packages of the operating system in their newest versions, as far as the repositories of the host, or the store, have them. What somebody holds back
// stays, nothing is removed, and changed configuration files are kept.
type Newest struct {
	Packages          // Names may be patterns of a shell; none: all that are installed. Those that are not installed are left alone
	Restarts []string `json:"-"` // see Change
}

func (Newest) String() string { return "newest packages" }

// Owns is nothing that was not there before.
func (Newest) Owns() ([]string, error) { return nil, nil }

// script has how the package manager does it.
func (n Newest) script() string {
	installed, what := "", "upgrade"
	if n.Manager == "apt" {
		const keep = " --no-remove -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
		what = "upgrade --with-new-pkgs" + keep
		if len(n.Names) > 0 {
			what = "install --only-upgrade --no-install-recommends" + keep
		}
	}
	if len(n.Names) > 0 {
		list := n.list(n.Names...)
		if n.Manager != "apt" {
			list = rpmList + " " + runner.Quote(n.Names...)
		}
		installed, what = "n=$("+list+" | sort -u); [ -z \"$n\" ] || ", what+" $n"
	}
	return n.does(what, installed)
}

// Precheck asks the package manager what it would do. Before the first time in a run, the lists of what repositories have are read again: of the host these
// caches alone change; and the index of a store is laid where kubexm keeps its own, and taken away again.
func (n Newest) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	script := n.script()
	out, err := n.planned(ctx, r, script)
	if err != nil {
		return nil, fault.Advise(fmt.Errorf("asking for newer packages: %w", err), n.advice())
	}
	diff := ""
	for line := range strings.Lines(out) {
		diff += n.told(strings.Fields(line))
	}
	if diff == "" {
		return nil, nil
	}
	return &Change{Diff: diff, Restarts: n.Restarts, Run: func(ctx context.Context) (err error) {
		if n.From != nil {
			if err := n.bring(ctx, r, script); err != nil {
				return fault.Advise(fmt.Errorf("bringing newer packages from the store: %w", err), n.advice())
			}
		}
		if _, err := r.ChangeWith(ctx, script, "rc=0; get >&2 || rc=$?; after; exit $rc"); err != nil {
			return fault.Advise(fmt.Errorf("upgrading packages: %w", err), n.advice())
		}
		return nil
	}}, nil
}

// told tells of what a line of the plan has: NAME; of apt-get, Inst NAME [OLD] (NEW ORIGIN [ARCH]), without OLD where the package comes along.
func (n Newest) told(f []string) string {
	switch {
	case n.Manager != "apt" && len(f) > 0:
		return "+ package " + f[0] + "\n"
	case n.Manager != "apt" || len(f) < 3 || f[0] != "Inst":
		return ""
	case len(f) > 3 && f[2][0] == '[':
		return "+ package " + f[1] + " " + strings.Trim(f[3], "()") + ", was " + strings.Trim(f[2], "[]") + "\n"
	}
	return "+ package " + f[1] + " " + strings.Trim(f[2], "()") + "\n"
}

// planned is what would be taken.
func (n Newest) planned(ctx context.Context, r *runner.Runner, script string) (string, error) {
	switch {
	case n.Manager == "":
		return "", errors.New("the host has none of the package managers apt, dnf and yum")
	case n.From != nil:
		out, err := n.lay(ctx, r, script)
		if failed := clearHost(ctx, r); err == nil {
			err = failed
		}
		return out, err
	}
	refresh := n.Manager + " -q clean expire-cache >&2 && " + n.Manager + " -q makecache >&2"
	if n.Manager == "apt" { // without the option it takes a repository that does not answer for one without news
		refresh = "apt-get -q -o APT::Update::Error-Mode=any update >&2"
	}
	_, err := runner.Memo(r, "package lists", func() (string, error) { return r.Sh(ctx, refresh) })
	if err != nil {
		return "", err
	}
	return r.ChangeWith(ctx, script, "out=$(plan)\nprintf '%s\\n' \"$out\" | "+n.taken()+"\n")
}

func (n Newest) advice() string {
	if n.From != nil {
		return "import newer packages: 'kubexm download --refresh --os " + n.From.System + " --export' on a machine with internet, then 'kubexm import'"
	}
	return "check the host's package repositories and its network: try the same command there"
}
