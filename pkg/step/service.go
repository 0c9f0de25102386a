package step

import (
	"context"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// Service ensures that a systemd service has its unit and kubexm's drop-in, is
// enabled, and that the running process was started with everything as it is
// now: the drop-in carries a digest of all that the process reads, and the
// process's own environment says with which one it was started. A crash
// between "file written" and "service restarted" so heals on the next run.
type Service struct {
	Name   string   // without ".service"
	Unit   Content  `json:",omitempty"` // unit file; empty: the unit comes with the system
	DropIn Content  // drop-in: its [Service] section must come last
	Reads  []Step   // the steps that bring what the process reads
	Hold   []string `json:",omitempty"` // files; until all are there, someone else starts the service the first time
	Files  []File   `json:",omitempty"` // further small files that go with the unit
	Reload *Reload  `json:",omitempty"` // nil: whatever changes takes a restart
}

func (s Service) String() string { return "service " + s.Name }

func (s Service) unitPath() string   { return "/etc/systemd/system/" + s.Name + ".service" }
func (s Service) dropInPath() string { return s.unitPath() + ".d/kubexm-" + s.Name + ".conf" }

// files returns the unit's files with the digest put into the drop-in, but for those that are reloaded.
func (s Service) files() (Files, string, error) {
	// Everybody on the host can read this digest, which has no key: whatever is digested must be public or hold enough
	// chance. So it is: containerd's logins are read at each pull and no part of it, the registry's users file has
	// bcrypt's salt, and harbor.yml a random password beside the chosen one.
	bare := s
	bare.Reads = nil
	if s.Reload != nil {
		bare.DropIn = append(slices.Clone(s.DropIn), s.Reload.dropIn(s.Name)...)
		bare.Reload = &Reload{Frame: s.Reload.Frame}
	}
	digest, err := Digest(append([]Step{bare}, s.Reads...)...)
	if err != nil {
		return Files{}, "", err
	}
	dropIn := append(slices.Clone(bare.DropIn), "Environment=KUBEXM_DIGEST="+digest+"\n"...)
	f := Files{What: s.Name, List: append([]File{{Path: s.dropInPath(), Content: dropIn, Mode: 0o644}}, s.Files...)}
	if s.Unit != nil {
		f.List = append(f.List, File{Path: s.unitPath(), Content: s.Unit, Mode: 0o644})
	}
	return f, digest, nil
}

// Writes is the unit with its drop-in and what goes with it.
func (s Service) Writes() ([]File, error) {
	f, _, err := s.files()
	return s.all(f).List, err
}

// all puts what is reloaded before the digest: a process with the digest then has no older frame.
func (s Service) all(f Files) Files {
	f.List = slices.Concat(s.reloaded(), f.List)
	return f
}

// Owns is the unit, which Restore starts again where it was there before, and its files.
func (s Service) Owns() ([]string, error) {
	files, err := s.Writes()
	return append(pathsOf(files), "unit "+s.Name, "service "+s.Name), err
}

//go:embed scripts/*.sh
var scripts embed.FS

// script asks systemd and the process about the service, and starts it.
func (s Service) script() string {
	return runner.Inputs("UNIT", s.Name) + runner.Script(scripts, "service")
}

// Precheck looks at the unit files, at systemd and at the running process. What a kubexm that could not reload has
// started stays as it is, until something changes.
func (s Service) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	files, err := s.Writes()
	if err != nil {
		return nil, err
	}
	look := s.script() + "service_state"
	for _, f := range s.Hold {
		look += "; if [ ! -e " + runner.Quote(f) + " ]; then echo held=yes; fi"
	}
	old, out, err := r.Look(ctx, look, Files{List: files}.paths()...)
	if err != nil {
		return nil, fmt.Errorf("looking at service %s: %w", s.Name, err)
	}
	have := stateOf(out)
	change, err := s.change(r, old, have)
	if change != nil && s.Reload != nil {
		if former, err := s.former().change(r, old, have); former == nil {
			return nil, err
		}
	}
	return change, err
}

// Properties are those that systemctl show prints, a line each.
func Properties(out string) map[string]string {
	have := map[string]string{}
	for l := range strings.SplitSeq(out, "\n") {
		k, v, _ := strings.Cut(l, "=")
		have[k] = v
	}
	return have
}

// stateOf reads what service_state prints.
func stateOf(out string) map[string]string {
	have := Properties(out)
	for l := range strings.SplitSeq(out, "\n") {
		if sum, path, ok := strings.Cut(l, "  "); ok { // of sha256sum
			have[path] = sum
		}
	}
	for v := range strings.FieldsSeq(have["Environment"]) {
		if v, ok := strings.CutPrefix(v, "KUBEXM_DIGEST="); ok {
			have["loaded unit"] = v
		}
	}
	if have["ActiveState"] == "reloading" { // it goes on with what it had
		have["ActiveState"] = "active"
	}
	return have
}

// change restarts the service, or reloads it where that is enough.
func (s Service) change(r *runner.Runner, old map[string]runner.File, have map[string]string) (*Change, error) {
	files, digest, err := s.files()
	if err != nil {
		return nil, err
	}
	changed := files.gap(old).diff
	want := map[string]string{"UnitFileState": "enabled", "program": ""}
	if changed == "" {
		want["loaded unit"] = digest
	}
	held := have["held"] == "yes"
	if !held {
		want["ActiveState"] = "active"
	}
	if !held || have["KUBEXM_DIGEST"] != "" { // a held one may start and fail again and again until it is configured
		want["KUBEXM_DIGEST"] = digest
	}
	differ := differs(s.Name, have, want)
	if changed+differ == "" {
		return s.reload(r, old, have), nil
	}
	g := s.all(files).gap(old)
	var restarts []string
	if have["KUBEXM_DIGEST"] != "" || !held && have["ActiveState"] == "active" {
		restarts = []string{s.Name}
	}
	return &Change{
		Diff: g.diff + differ, Restarts: restarts,
		Run: func(ctx context.Context) error {
			return s.run(ctx, r, g, digest, have, held)
		},
		Rollback: s.rollback(r, g, have["ActiveState"] == "active", have["UnitFileState"] == "enabled"),
		Resume:   s.resume(r, have["ActiveState"] == "active"),
	}, nil
}

// differs says what is not as it is wanted.
func differs(name string, have, want map[string]string) (diff string) {
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if have[k] != want[k] {
			diff += fmt.Sprintf("%s: %s %q -> %q\n", name, k, have[k], want[k])
		}
	}
	return diff
}

func (s Service) run(ctx context.Context, r *runner.Runner, g gap, digest string, was map[string]string, held bool) error {
	// Noted first, so that Restore knows of the unit whatever happens next; as a new unit
	// also when an earlier run has enabled it.
	verb, act, known := "unit", "restart", "new"
	if was["UnitFileState"] == "enabled" {
		verb = "service"
	}
	if was["LoadState"] != "not-found" && g.put != nil {
		known = "old"
	}
	if held {
		act = "try-restart"
	}
	return s.does(ctx, r, "start_service "+runner.Quote(s.Name, verb, act, digest, known), g.put)
}

// does runs a function of the script; what the service says of a failure comes with it.
func (s Service) does(ctx context.Context, r *runner.Runner, call string, put []runner.File) error {
	if _, err := r.ChangeWith(ctx, s.script(), call, put...); err != nil {
		err = fmt.Errorf("%w\n%s", err, Journal(ctx, r, s.Name))
		return fault.Advise(err, "look at the host: journalctl -u "+runner.Quote(s.Name)+"; --no-rollback keeps everything as it is")
	}
	return nil
}

func (s Service) rollback(r *runner.Runner, g gap, wasActive, wasEnabled bool) func(context.Context) error {
	return func(ctx context.Context) error {
		n := runner.Quote(s.Name)
		before := ""
		if !wasEnabled {
			before += "systemctl disable " + n + "; "
		}
		if !wasActive {
			before += "systemctl stop " + n + "; "
		}
		if _, err := r.Sh(ctx, "{ "+before+"true; } 2>/dev/null"); err != nil {
			return err
		}
		if err := g.rollBack(ctx, r); err != nil {
			return err
		}
		_, err := r.Sh(ctx, "systemctl daemon-reload")
		return err
	}
}

// resume starts the service again that ran before, with the program and the files of before.
func (s Service) resume(r *runner.Runner, wasActive bool) func(context.Context) error {
	if !wasActive {
		return nil
	}
	return func(ctx context.Context) error {
		_, err := r.Sh(ctx, "systemctl restart "+runner.Quote(s.Name))
		return err
	}
}

// Journal returns the last log lines of a unit, for error messages.
func Journal(ctx context.Context, r *runner.Runner, unit string) string {
	out, err := r.Sh(ctx, "journalctl -q --no-pager -o cat -n 15 -u "+runner.Quote(unit)+" 2>/dev/null || true")
	if err != nil || out == "" {
		return "no log lines of " + unit
	}
	return "last log lines of " + unit + ":\n" + human.Clean(out)
}
