package runnertest_test

import (
	"context"
	"fmt"

	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
)

// A step is run on a host in memory, and again: the second time it finds
// nothing to do.
func Example() {
	h := runnertest.Debian12("node1")
	s := step.File{Path: "/etc/motd", Content: step.Content("hello\n"), Mode: 0o644}
	for range 2 {
		c, err := s.Precheck(context.Background(), h.Runner())
		switch {
		case err != nil:
			fmt.Println(err)
		case c == nil:
			fmt.Println("nothing to do")
		default:
			fmt.Println(c.Diff, c.Run(context.Background()))
		}
	}
	text, _ := h.Get("/etc/motd")
	fmt.Print(text)
	// Output:
	// --- /etc/motd
	// +++ /etc/motd
	// @@ -0,0 +1,1 @@
	// +hello
	//  <nil>
	// nothing to do
	// hello
}
