package step

import (
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/templates"
)

// Timer describes a script that systemd runs at certain times.
type Timer struct {
	Name        string
	Description string
	Calendar    string   // OnCalendar= of systemd.timer(5)
	Settings    []string // further lines of its [Timer] section
	Timeout     string   // TimeoutStartSec= of systemd.service(5)
	Script      string   // for /bin/sh
}

// Step returns the step that ensures the script and the timer. What systemd has loaded is told by the digest in the service's environment, as that is read together with
// the timer.
func (t Timer) Step() Step {
	// Where SELinux confines services, systemd runs nothing that lies below /var/lib.
	command := "/usr/local/libexec/" + t.Name
	unit := func(digest string) []File {
		return []File{
			{Path: command, Content: Content("#!/bin/sh\n# Made by kubexm.\n" + t.Script), Mode: 0o700},
			{Path: "/etc/systemd/system/" + t.Name + ".service", Mode: 0o644, Content: templates.Render("systemd/timed", struct{ Description, Timeout, Digest, Command string }{t.Description, t.Timeout, digest, command})},
			{Path: "/etc/systemd/system/" + t.Name + ".timer", Mode: 0o644, Content: templates.Render("systemd/timer", t)},
		}
	}
	digest := templates.Digest(append(unit("")[1].Content, unit("")[2].Content...))
	timer := t.Name + ".timer"
	return Files{What: t.Name, List: unit(digest), Also: []Command{{
		What:   "timer " + t.Name,
		Inputs: runner.Inputs("NAME", t.Name, "DIGEST", digest, "CALENDAR", t.Calendar), Script: runner.Script(scripts, "timer"),
		Unless: "timer_runs", Run: "note " + runner.Quote("unit "+timer) + "; start_timer", Undo: "stop_timer", Makes: []string{"unit " + timer},
	}}}
}
