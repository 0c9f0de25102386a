package host

import (
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

const ledger = runner.StateDir + "/ledger"

// System are the settings of the operating system that cost one look, all together.
func System(host string) step.Step {
	return step.Commands{What: "system settings", List: []step.Command{Name(host), SELinux(), Firewall(), SwapOff()}}
}

// Name gives the machine the host's name, which its node has too: logs, metrics and prompts then speak
// of the same machine. A name that was set by hand is left alone by cloud-init (its module update_hostname).
// hostnamectl does the same, but needs D-Bus.
func Name(host string) step.Command {
	const kernel = "/proc/sys/kernel/hostname"
	n := runner.Quote(host)
	return step.Command{
		What:   "host name",
		Unless: `[ "$(cat ` + kernel + `)" = ` + n + ` ] && [ "$(cat /etc/hostname)" = ` + n + ` ]`,
		Run: `if [ "$(cat ` + kernel + `)" != ` + n + ` ]; then note "sysctl kernel/hostname $(cat ` + kernel + `)"; echo ` + n + ` >` + kernel + `; fi
keep /etc/hostname; echo ` + n + ` >/etc/hostname.kubexm; mv -fT /etc/hostname.kubexm /etc/hostname`,
		Makes: []string{"path /etc/hostname", "sysctl kernel/hostname"},
		Undo: putBack("/etc/hostname") + `
while read -r verb k was; do if [ "$verb $k" = 'sysctl kernel/hostname' ]; then echo "$was" >` + kernel + `; break; fi; done <` + ledger,
	}
}

// putBack is a script that puts back what was at paths before kubexm, unless nothing was changed there.
func putBack(paths ...string) string {
	return "for f in " + strings.Join(paths, " ") + `; do if grep -qx "path $f" ` + ledger + `; then rm -f $f
o=` + runner.StateDir + `/before$f; if [ -e $o ] || [ -L $o ]; then cp -a $o $f; fi; fi; done`
}

// SELinux lets SELinux, where it is enforced, only warn from now on, and be off from the next boot on. Files
// that are made while it is off have no labels; Red Hat's selinux-autorelabel-mark.service sees to
// it that they get them when it is on again.
func SELinux() step.Command {
	const now, conf = "/sys/fs/selinux/enforce", "/etc/selinux/config"
	const enforced, atBoot = `[ "$(cat ` + now + ` 2>/dev/null)" = 1 ]`, `grep -qs '^SELINUX=enforcing' ` + conf
	return step.Command{
		What:   "SELinux not enforced",
		Unless: `! ` + enforced + ` && ! ` + atBoot,
		Run: `if ` + atBoot + `; then note 'selinux boot'; sed -i 's/^SELINUX=enforcing/SELINUX=disabled/' ` + conf + `; fi
if ` + enforced + `; then note 'selinux now'; echo 0 >` + now + `; fi`,
		Makes: []string{"selinux boot", "selinux now"},
		Undo: `if grep -qx 'selinux boot' ` + ledger + `; then sed -i 's/^SELINUX=disabled/SELINUX=enforcing/' ` + conf + `; fi
if grep -qx 'selinux now' ` + ledger + `; then echo 1 >` + now + `; fi`,
	}
}

// Firewall turns host firewalls off: they know nothing of the networks of pods and services.
// A ufw that is installed but not in use stays as it is.
func Firewall() step.Command { return off("no host firewall", "firewalld", "ufw") }

// on tells whether a service runs or starts at boot. That of ufw does both, and does nothing unless ufw is in use; and
// `ufw enable` loads its rules without it.
const on = `boots() { [ "$(systemctl is-enabled "$1" 2>/dev/null)" = enabled ]; }
rules() { [ "$1" = ufw ] && iptables -S ufw-user-input >/dev/null 2>&1; }
on() { if [ "$1" = ufw ] && ! grep -qsi '^ENABLED=yes' /etc/ufw/ufw.conf; then return 1; fi; boots "$1" || systemctl is-active -q "$1" || rules "$1"; }
`

// off stops services, now and at boot. Delete turns those on again that were. One that has loaded rules is started first:
// to stop what does not run would leave them.
func off(what string, services ...string) step.Command {
	each := "for s in " + strings.Join(services, " ") + "; do "
	var makes []string
	for _, s := range services {
		makes = append(makes, "enabled "+s, "active "+s)
	}
	return step.Command{
		What: what, Makes: makes,
		Unless: on + each + `if on $s; then exit 1; fi; done`,
		Run: on + each + `if on $s; then if rules $s; then systemctl start $s || :; fi; if boots $s; then note "enabled $s"; fi
if systemctl is-active -q $s; then note "active $s"; fi; systemctl -q disable --now $s; fi; done`,
		Undo: each + `if grep -qx "enabled $s" ` + ledger + `; then systemctl -q enable $s; fi
if grep -qx "active $s" ` + ledger + `; then systemctl start $s; fi; done`,
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
