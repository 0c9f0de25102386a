package step_test

import (
	"testing"

	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
)

// TestApart changes a block on some lines of which others depend.
func TestApart(t *testing.T) {
	for name, c := range map[string]struct {
		depends []string
		was, is string
		apart   bool
	}{
		"all depend":     {nil, "1 a\n", "1 a\n2 b\n", false},
		"another comes":  {[]string{"lb"}, "1 a\n1 lb\n", "1 a\n2 b\n1 lb\n", true},
		"another goes":   {[]string{"lb"}, "1 a\n2 b\n1 lb\n", "1 a\n1 lb\n", true},
		"it leads away":  {[]string{"lb"}, "1 a\n1 lb\n", "1 a\n2 lb\n", false},
		"it is new":      {[]string{"lb"}, "1 a\n", "1 a\n1 lb\n", false},
		"part of a word": {[]string{"lb"}, "1 lbx\n", "2 lbx\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := runnertest.Debian12("a")
			r := h.Runner()
			make := func(text string) *step.Change {
				b := step.Block{Path: "/etc/hosts", Begin: "# BEGIN", End: "# END", Content: step.Content(text), Mode: 0o644, Depends: c.depends}
				change, err := b.Precheck(t.Context(), r)
				if err != nil || change == nil {
					t.Fatal(change, err)
				}
				return change
			}
			if err := make(c.was).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := make(c.is).Apart; got != c.apart {
				t.Errorf("got %t", got)
			}
		})
	}
}
