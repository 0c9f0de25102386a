package step

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Modules ensures kernel modules now and after each boot. A module that the
// kernel has built in, or does not have, is accepted as it is.
type Modules struct {
	Path  string // modules-load.d(5) file
	Names []string
}

func (m Modules) String() string { return "kernel modules" }

// Writes is the file that systemd reads at boot.
func (m Modules) Writes() ([]File, error) {
	return []File{{Path: m.Path, Content: Content(strings.Join(m.Names, "\n") + "\n"), Mode: 0o644}}, nil
}

// Owns is the file and the modules.
func (m Modules) Owns() ([]string, error) {
	files, err := m.Writes()
	keys := pathsOf(files)
	for _, n := range m.Names {
		keys = append(keys, "module "+n)
	}
	return keys, err
}

// Precheck reads the file and /proc/modules.
func (m Modules) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	list, err := m.Writes()
	if err != nil {
		return nil, err
	}
	conf := Files{List: list}
	// What modprobe shows last is the module itself: a file to insert, or "builtin".
	load := fmt.Sprintf(`for m in %s; do if ! grep -q "^$m " /proc/modules && modprobe --show-depends "$m" 2>/dev/null | tail -n 1 | grep -q ^insmod; then `, runner.Quote(m.Names...))
	old, missing, err := r.Look(ctx, load+`echo "$m"; fi; done`, conf.paths()...)
	if err != nil {
		return nil, fmt.Errorf("looking at kernel modules: %w", err)
	}
	file := conf.gap(old)
	if file.put == nil && missing == "" {
		return nil, nil
	}
	c := &Change{Diff: file.diff}
	if missing != "" {
		c.Diff += "+ load " + strings.ReplaceAll(missing, "\n", " ") + "\n"
	}
	c.Run = func(ctx context.Context) error {
		// The file comes last: with it, a reboot would load the modules without a note of it.
		_, err := r.Change(ctx, load+`note "module $m"; modprobe "$m"; fi; done; files`, file.put...)
		return err
	}
	c.Rollback = func(ctx context.Context) error {
		if err := file.rollBack(ctx, r); err != nil {
			return err
		}
		loaded := strings.Fields(missing)
		slices.Reverse(loaded)
		_, err := r.Sh(ctx, "modprobe -rq "+runner.Quote(loaded...)+" 2>/dev/null || true") // one that is in use stays
		return err
	}
	return c, nil
}

// Sysctl ensures kernel parameters now and after each boot. The values that
// were there before are noted, for Restore.
type Sysctl struct {
	Path     string            // sysctl.d(5) file
	Values   map[string]string // "net.ipv4.ip_forward": "1"
	Optional []string          `json:",omitempty"` // those of them that are left out where the kernel does not have them: a container has not all
	Last     string            `json:",omitempty"` // the one of them that is set after the others
	Files    []File            `json:",omitempty"` // further small files that go with it
}

func (s Sysctl) String() string { return "kernel parameters" }

// keys are the parameters in the order in which they are set.
func (s Sysctl) keys() []string {
	keys := slices.Sorted(maps.Keys(s.Values))
	if i := slices.Index(keys, s.Last); i >= 0 {
		keys = append(slices.Delete(keys, i, i+1), s.Last)
	}
	return keys
}

// Writes is the file that systemd reads at boot, and what goes with it.
func (s Sysctl) Writes() ([]File, error) {
	var conf strings.Builder
	for _, k := range s.keys() {
		mark := ""
		if slices.Contains(s.Optional, k) {
			mark = "-"
		}
		fmt.Fprintf(&conf, "%s%s = %s\n", mark, k, s.Values[k])
	}
	return append([]File{{Path: s.Path, Content: Content(conf.String()), Mode: 0o644}}, s.Files...), nil
}

// Owns is the files and the parameters.
func (s Sysctl) Owns() ([]string, error) {
	files, err := s.Writes()
	keys := pathsOf(files)
	for _, k := range s.keys() {
		keys = append(keys, "sysctl "+strings.TrimPrefix(sysctlPath(k), "/proc/sys/"))
	}
	return keys, err
}

// Precheck reads the file and the running values.
func (s Sysctl) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	keys := s.keys()
	var read strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&read, "cat %s 2>/dev/null || echo; ", runner.Quote(sysctlPath(k)))
	}
	list, err := s.Writes()
	if err != nil {
		return nil, err
	}
	files := Files{List: list}
	old, out, err := r.Look(ctx, read.String(), files.paths()...)
	if err != nil {
		return nil, fmt.Errorf("reading kernel parameters: %w", err)
	}
	file := files.gap(old)
	have := strings.Split(out+strings.Repeat("\n", len(keys)), "\n")
	var notes, set, unset, text strings.Builder
	for i, k := range keys {
		was := strings.Join(strings.Fields(have[i]), " ") // the kernel has tabs
		if was == strings.Join(strings.Fields(s.Values[k]), " ") || was == "" && slices.Contains(s.Optional, k) {
			continue
		}
		p := sysctlPath(k)
		fmt.Fprintf(&text, "%s: %q -> %q\n", k, was, s.Values[k])
		fmt.Fprintf(&notes, "note %s\n", runner.Quote("sysctl "+strings.TrimPrefix(p, "/proc/sys/")+" "+was))
		fmt.Fprintf(&set, "echo %s >%s\n", runner.Quote(s.Values[k]), runner.Quote(p))
		fmt.Fprintf(&unset, "echo %s >%s\n", runner.Quote(was), runner.Quote(p))
	}
	if file.put == nil && text.Len() == 0 {
		return nil, nil
	}
	c := &Change{Diff: file.diff + text.String()}
	c.Run = func(ctx context.Context) error {
		// The files come last: with them, a reboot would set the values without a note of the old ones.
		_, err := r.Change(ctx, "later=y\n"+notes.String()+"settle\n"+set.String()+"files", file.put...)
		return err
	}
	c.Rollback = func(ctx context.Context) error {
		if err := file.rollBack(ctx, r); err != nil {
			return err
		}
		_, err := r.Sh(ctx, unset.String())
		return err
	}
	return c, nil
}

// sysctlPath is where the kernel has a parameter. One with slashes between its parts may have dots in them, as interfaces of VLANs have (sysctl.d(5)).
func sysctlPath(key string) string {
	if strings.Contains(key, "/") {
		return "/proc/sys/" + key
	}
	return "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
}
