package step

import (
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/templates"
)

// Timer describes what systemd runs at certain times.
type Timer struct {
	Name        string
	Description string
	Calendar    string   // OnCalendar= of systemd.timer(5)
	Settings    []string // further lines of its [Timer] section
	Timeout     string   // TimeoutStartSec= of systemd.service(5)
	Service     []string // further lines of its [Service] section
	Command     string   // ExecStart=; of Step: its script
	Script      string   // of Step, for /bin/sh
}

// Units are the files that systemd reads.
func (t Timer) Units() []File {
	return []File{
		{Path: "/etc/systemd/system/" + t.Name + ".service", Mode: 0o644, Content: templates.Render("systemd/timed", t)},
		{Path: "/etc/systemd/system/" + t.Name + ".timer", Mode: 0o644, Content: templates.Render("systemd/timer", t)},
	}
}

// Step returns the step that ensures the script and the timer on a host. What systemd has loaded is told by the digest in the service's environment, as that is read together
// with the timer.
func (t Timer) Step() Step {
	t.Command = "/usr/local/libexec/" + t.Name // where SELinux confines services, systemd runs nothing that lies below /var/lib
	units := t.Units()
	digest := templates.Digest(append(units[0].Content, units[1].Content...))
	t.Service = append(t.Service, "Environment=KUBEXM_DIGEST="+digest)
	timer := t.Name + ".timer"
	script := File{Path: t.Command, Content: Content("#!/bin/sh\n# Made by kubexm.\n" + t.Script), Mode: 0o700}
	return Files{What: t.Name, List: append([]File{script}, t.Units()...), Also: []Command{{
		What:   "timer " + t.Name,
		Inputs: runner.Inputs("NAME", t.Name, "DIGEST", digest, "CALENDAR", t.Calendar), Script: runner.Script(scripts, "timer"),
		Unless: "timer_runs", Run: "note " + runner.Quote("unit "+timer) + "; start_timer", Undo: "stop_timer", Makes: []string{"unit " + timer},
	}}}
}
