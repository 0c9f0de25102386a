package step

import (
	"slices"

	"github.com/kubexm/kubexm/pkg/templates"
)

// Unit describes a systemd service that runs one program: the unit file is
// small, the drop-in has the full command line.
type Unit struct {
	Name          string
	Description   string
	Documentation string
	After         string   // unit that is wanted and started before
	Type          string   // Type= of systemd.service(5); empty: simple
	Before        []string // ExecStartPre= command lines
	Command       string
	Args          map[string]string // flags without dashes
	Settings      []string          // further lines of the [Service] section
	Reads         []Step            // the steps that bring what the program reads
	Hold          []string          // see Service
	Reload        *Reload           // see Service
	Titled        bool              // the program writes its title over its environment, as nginx does
}

// Service returns the step that ensures the unit.
func (u Unit) Service() Service {
	if u.Type == "" {
		u.Type = "simple"
	}
	if u.Titled {
		dir := "kubexm-" + u.Name
		u.Settings = append(slices.Clone(u.Settings), "RuntimeDirectory="+dir)
		u.Before = append(slices.Clone(u.Before), "/bin/sh -c 'printenv KUBEXM_DIGEST | sed s/^/KUBEXM_DIGEST=/ >/run/"+dir+"/environ'")
	}
	return Service{
		Name: u.Name, Reads: u.Reads, Hold: u.Hold, Reload: u.Reload,
		Unit:   templates.Render("systemd/unit", u),
		DropIn: templates.Render("systemd/dropin", u),
	}
}

// Limits returns the settings of a service that needs many files and processes
// and must outlive others when memory is short. Where the machine may not raise
// limits (no CAP_SYS_RESOURCE), systemd could not start it with them.
func Limits(canRaise bool, oomScore string) []string {
	if !canRaise {
		return nil
	}
	return []string{"LimitNOFILE=1048576", "LimitNPROC=infinity", "LimitCORE=infinity", "OOMScoreAdjust=" + oomScore}
}

// HoldsContainers are the settings of a service whose containers must survive it.
func HoldsContainers() []string {
	return []string{"Delegate=yes", "KillMode=process", "TasksMax=infinity"}
}
