package step

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
)

// Block ensures a block of lines between two marker lines in a file that has
// other owners too, such as /etc/hosts.
type Block struct {
	Path    string
	Begin   string      // first marker line
	End     string      // last marker line
	Content Content     // what stands between: lines, each ended
	Mode    fs.FileMode // of the file when it has to be made
	First   bool        `json:",omitempty"` // a new block is put at the beginning of the file, not at its end
	Depends []string    `json:"-"`          // words: other steps depend on the lines with one of them alone; nil: on all

	Until     string  `json:",omitempty"` // a file: until it is there, Meanwhile stands in the place of Content
	Meanwhile Content `json:",omitempty"`
}

func (b Block) String() string { return "block in " + b.Path }

// Writes is the block alone: the rest of the file is not kubexm's.
func (b Block) Writes() ([]File, error) {
	return []File{{Path: b.Path, Content: Content(b.Begin + "\n" + string(b.Content) + b.End + "\n"), Mode: b.Mode}}, nil
}

// Owns is the block; of a file that is a link, or was not there, the file.
func (b Block) Owns() ([]string, error) {
	p := path.Clean(b.Path)
	return []string{b.edit(), "path " + p, "file " + p}, nil
}

// Precheck reads the file.
func (b Block) Precheck(ctx context.Context, r *runner.Runner) (*Change, error) {
	paths := []string{b.Path}
	if b.Until != "" {
		paths = append(paths, b.Until)
	}
	old, err := r.ReadFiles(ctx, paths...)
	if err != nil {
		return nil, err
	}
	if _, there := old[b.Until]; b.Until != "" && !there {
		b.Content = b.Meanwhile
	}
	was, exists := old[b.Path]
	if !exists {
		was = runner.File{Mode: b.Mode}
	}
	text, err := b.replace(string(was.Data))
	if err != nil {
		return nil, err
	}
	c := Files{List: []File{{Path: b.Path, Content: Content(text), Mode: was.Mode, Owner: was.Owner, edit: b.edit()}}}.change(r, old)
	if c != nil && b.Depends != nil {
		c.Apart = slices.Equal(b.depends(string(was.Data)), b.depends(text))
	}
	return c, nil
}

// depends are the lines that other steps depend on.
func (b Block) depends(text string) (lines []string) {
	for l := range strings.Lines(text) {
		if slices.ContainsFunc(strings.Fields(l), func(word string) bool { return slices.Contains(b.Depends, word) }) {
			lines = append(lines, l)
		}
	}
	return lines
}

// edit is the line of the ledger: Restore cuts the block out, and leaves what others wrote meanwhile.
func (b Block) edit() string { return "block " + path.Clean(b.Path) + "\t" + b.Begin + "\t" + b.End }

// replace returns text with the block in place of the old one, or at the end or the beginning.
func (b Block) replace(text string) (string, error) {
	block := strings.Split(b.Begin+"\n"+string(b.Content)+b.End, "\n")
	var lines []string
	if text = strings.TrimSuffix(text, "\n"); text != "" {
		lines = strings.Split(text, "\n")
	}
	from, to := slices.Index(lines, b.Begin), slices.Index(lines, b.End)
	switch {
	case from < 0 && to < 0 && b.First:
		lines = append(block, lines...)
	case from < 0 && to < 0:
		lines = append(lines, block...)
	case from < 0 || to < from || slices.Contains(lines[from+1:], b.Begin) || slices.Contains(lines[to+1:], b.End):
		return "", fmt.Errorf("%s must contain %q and %q once each, in this order: fix the file by hand", b.Path, b.Begin, b.End)
	default:
		lines = slices.Replace(lines, from, to+1, block...)
	}
	return strings.Join(lines, "\n") + "\n", nil
}
