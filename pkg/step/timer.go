package step

import (
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/templates"
)

// Timer describes what systemd runs at certain times.
type Timer struct {
	Name        string
	Description string
	After       string   // After= of systemd.unit(5): network-online.target, and units that run at other times; empty: it needs no network
	Calendar    string   // OnCalendar= of systemd.timer(5)
	Settings    []string // further lines of its [Timer] section
	Timeout     string   // TimeoutStartSec= of systemd.service(5)
	Service     []string // further lines of its [Service] section
	Command     string   // ExecStart=; of Steps: the script
	Script      string   // of Steps, for /bin/sh
}

// Units are the files that systemd reads.
func (t Timer) Units() []File {
	return []File{
		{Path: "/etc/systemd/system/" + t.Name + ".service", Mode: 0o644, Content: templates.Render("systemd/timed", t)},
		{Path: "/etc/systemd/system/" + t.Name + ".timer", Mode: 0o644, Content: templates.Render("systemd/timer", t)},
	}
}

// CheckCalendar is a script that fails where systemd does not take a time.
func CheckCalendar(calendar string) string {
	return runner.Inputs("CALENDAR", calendar) + runner.Script(scripts, "timer") + "takes_time\n"
}

// Steps are those that ensure the script and the timer on a host. What systemd has loaded is told by the digest in the service's environment, as that is read together with the
// timer.
func (t Timer) Steps() []Step {
	t.Command = "/usr/local/libexec/" + t.Name // where SELinux confines services, systemd runs nothing that lies below /var/lib
	units := t.Units()
	digest := templates.Digest(append(units[0].Content, units[1].Content...))
	t.Service = append(t.Service, "Environment=KUBEXM_DIGEST="+digest)
	owns := []string{"unit " + t.Name + ".timer", "unit " + t.Name + ".service"}
	script := File{Path: t.Command, Content: Content("#!/bin/sh\n# Made by kubexm.\n" + t.Script), Mode: 0o700}
	check := CheckCalendar(t.Calendar)
	return []Step{
		Command{What: "time of " + t.Name, Unless: check, Run: check},
		Files{What: t.Name, List: append([]File{script}, t.Units()...), Also: []Command{{
			What:   "timer " + t.Name,
			Inputs: runner.Inputs("NAME", t.Name, "DIGEST", digest), Script: runner.Script(scripts, "timer"),
			Unless: "timer_runs", Run: "note " + runner.Quote(owns[0]) + "; note " + runner.Quote(owns[1]) + "; start_timer", Undo: "stop_timer", Makes: owns,
		}}},
	}
}
