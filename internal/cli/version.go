package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker for releases:
// -ldflags "-X github.com/kubexm/kubexm/internal/cli.version=v1.2.3".
var version string

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
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b build) String() string {
	return fmt.Sprintf("kubexm %s (%s, %s)\n", b.Version, b.Go, b.Platform)
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
