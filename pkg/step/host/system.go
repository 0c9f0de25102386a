package host

import (
	"embed"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

//go:embed scripts/*.sh
var scripts embed.FS

// script returns the functions of a script, and those that undoing needs.
func script(name string) string {
	return runner.Inputs("S", runner.StateDir) + runner.Script(scripts, "undo") + runner.Script(scripts, name)
}

// System are the settings of the operating system that cost one look, all together.
func System(host string) step.Step {
	return step.Commands{What: "system settings", List: []step.Command{Name(host), SELinux(), Firewall(), SwapOff()}}
}

// Name gives the machine the host's name, which its node has too: logs, metrics and prompts then speak
// of the same machine. A name that was set by hand is left alone by cloud-init (its module update_hostname).
// hostnamectl does the same, but needs D-Bus.
func Name(host string) step.Command {
	return step.Command{
		What: "host name", Inputs: runner.Inputs("NAME", host), Script: script("hostname"),
		Unless: "is_named", Run: "set_name", Undo: "put_name_back",
		Makes: []string{"path /etc/hostname", "sysctl kernel/hostname"},
	}
}

// SELinux lets SELinux, where it is enforced, only warn from now on, and be off from the next boot on. Files
// that are made while it is off have no labels; Red Hat's selinux-autorelabel-mark.service sees to
// it that they get them when it is on again.
func SELinux() step.Command {
	return step.Command{
		What: "SELinux not enforced", Script: script("selinux"),
		Unless: "! enforced && ! at_boot", Run: "turn_off", Undo: "turn_on",
		Makes: []string{"selinux boot", "selinux now"},
	}
}

// Firewall turns host firewalls off: they know nothing of the networks of pods and services.
// A ufw that is installed but not in use stays as it is.
func Firewall() step.Command { return off("no host firewall", "firewalld", "ufw") }

// off stops services, now and at boot. Delete turns those on again that were.
func off(what string, services ...string) step.Command {
	all := " " + strings.Join(services, " ")
	var makes []string
	for _, s := range services {
		makes = append(makes, "enabled "+s, "active "+s)
	}
	return step.Command{
		What: what, Makes: makes, Script: script("services"),
		Unless: "all_off" + all, Run: "turn_off" + all, Undo: "turn_on" + all,
	}
}

// limits let logins open as many files as systemd lets services (524288: systemd-system.conf(5)), start as many
// processes as the machine takes, and root lock memory for eBPF. Services have limits of their own. Only
// soft limits are set: pam_limits lowers those to the hard ones, but refuses the login, also
// root's, where it may not raise a hard one, as in a container or above fs.nr_open.
const limits = `# Made by kubexm.
* soft nofile 524288
* soft nproc unlimited
root soft nofile 524288
root soft nproc unlimited
root soft memlock unlimited
`
