package step

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Reload is how a service reads files again while it runs, and keeps the connections that it has. The unit itself notes in
// /run which content it was started with, so that a process which was restarted by anybody has read what it has read; a
// reload counts once a new worker is there.
type Reload struct {
	Files  []File  // that it reads again
	Frame  Content // what in them takes a restart
	Check  string  // command that fails where they are of no use
	Signal string  // to the main process, which gets another worker and lets the one before end with its connections
}

// dropIn is what the drop-in of the service has of it.
func (l Reload) dropIn(name string) string {
	var paths []string
	for _, f := range l.Files {
		paths = append(paths, f.Path)
	}
	dir, sums := "kubexm-"+name, "sha256sum "+strings.Join(paths, " ")
	return fmt.Sprintf("RuntimeDirectory=%[1]s\nExecStartPre=/bin/sh -c '%[2]s >/run/%[1]s/loaded'\nExecReload=%[3]s\n"+
		"ExecReload=/bin/sh -c '%[2]s >/run/%[1]s/loading && rm -f /run/%[1]s/loaded && kill -s %[4]s $MAINPID'\n", dir, sums, l.Check, l.Signal)
}

// reloaded are the files that a reload brings.
func (s Service) reloaded() []File {
	if s.Reload == nil {
		return nil
	}
	return s.Reload.Files
}

// former is the service as kubexm ran it before it could reload it.
func (s Service) former() Service {
	s.Files = slices.Concat(s.Files, s.Reload.Files)
	s.Reload = nil
	return s
}

// reload brings the files to a process that needs no restart.
func (s Service) reload(r *runner.Runner, old map[string]runner.File, have map[string]string) *Change {
	if have["MainPID"] == "0" { // it is held
		return Files{List: s.reloaded()}.change(r, old)
	}
	return Reload{Files: s.reloaded()}.change(s.Name, old, have, func(ctx context.Context, put []runner.File) error {
		return s.does(ctx, r, "reload_service "+runner.Quote(s.Name), put)
	})
}

// change puts files, and has the process read them, if they or what it has read are others than are wanted.
func (l Reload) change(name string, old map[string]runner.File, loaded map[string]string, again func(context.Context, []runner.File) error) *Change {
	g, want := Files{List: l.Files}.gap(old), map[string]string{}
	for _, f := range l.Files {
		if g.put == nil {
			want[f.Path] = f.sum()
		}
	}
	diff := g.diff + differs(name, loaded, want)
	if diff == "" {
		return nil
	}
	c := &Change{Diff: diff + name + ": reload\n", Run: func(ctx context.Context) error { return again(ctx, g.put) }}
	if g.back != nil {
		c.Rollback = func(ctx context.Context) error { return again(ctx, g.back) }
	}
	return c
}
