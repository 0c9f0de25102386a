package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/kubexm/kubexm/internal/cli"
)

// documents stages what goes to archives and packages beside the program.
func (r *release) documents() error {
	for _, name := range []string{"LICENSE", "README.md", "README.zh-CN.md"} {
		text, err := os.ReadFile(name)
		if err == nil {
			err = r.put(name, text)
		}
		if err != nil {
			return err
		}
	}
	if err := os.Unsetenv("KUBEXM_WORKDIR"); err != nil { // what is set becomes the default of --workdir, which man pages tell
		return err
	}
	root := cli.Command()
	root.DisableAutoGenTag = true
	for name, write := range map[string]func(io.Writer) error{ // by how shells want the files to be named
		"kubexm.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"_kubexm":     root.GenZshCompletion,
		"kubexm.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	} {
		var text bytes.Buffer
		if err := write(&text); err != nil {
			return err
		}
		if err := r.put("completions/"+name, text.Bytes()); err != nil {
			return err
		}
	}
	return r.man(root)
}

// man writes the pages of a command and of all below it.
func (r *release) man(cmd *cobra.Command) error {
	var text bytes.Buffer
	if err := doc.GenMan(cmd, &doc.GenManHeader{Section: "1", Date: &r.date, Source: "kubexm " + r.version, Manual: "kubexm"}, &text); err != nil {
		return err
	}
	packed, err := compress(text.Bytes())
	if err == nil {
		err = r.put("man/"+strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1.gz", packed)
	}
	for _, c := range cmd.Commands() {
		if err == nil && c.IsAvailableCommand() && !c.IsAdditionalHelpTopicCommand() {
			err = r.man(c)
		}
	}
	return err
}

// put writes a file below the stage.
func (r *release) put(name string, text []byte) error {
	path := filepath.Join(r.stage, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
