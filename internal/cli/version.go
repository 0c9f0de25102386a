package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// What the linker sets, as the Makefile says; else it is what the Go command noted.
var (
	version string // as of git describe
	commit  string // in full
	date    string // of the commit: RFC 3339, UTC
)

// build says what this program was made of.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"` // of the commit
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildOf() build {
	b := build{Version: version, Commit: commit, Time: date, Modified: strings.HasSuffix(version, "-dirty"), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(b.Version, info.Main.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, s.Value)
		case "vcs.time":
			b.Time = cmp.Or(b.Time, s.Value)
		case "vcs.modified":
			b.Modified = b.Modified || s.Value == "true"
		}
	}
	return b
}

// String is one line, with what is known: kubexm v1.2.3 (commit 0123456789ab, 2026-01-02, go1.26.8, linux/amd64).
func (b build) String() string {
	var about []string
	if b.Commit != "" {
		about = append(about, fmt.Sprintf("commit %.12s", b.Commit))
	}
	if b.Time != "" {
		about = append(about, fmt.Sprintf("%.10s", b.Time))
	}
	about = append(about, b.Go, b.Platform)
	return fmt.Sprintf("kubexm %s (%s)\n", b.Version, strings.Join(about, ", "))
}

func (p *program) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version of kubexm", GroupID: groupConfig,
		Example: "  kubexm version\n  kubexm version -o json",
		Args:    arguments(0),
	}
	format := output(cmd, "text", "json", "yaml")
	cmd.RunE = func(*cobra.Command, []string) error {
		b := buildOf()
		if format.value != "text" {
			return p.print(format.value, b)
		}
		_, err := fmt.Fprint(p.out, b)
		return err
	}
	return cmd
}
