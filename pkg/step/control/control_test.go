package control_test

import (
	"os"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step/control"
)

// TestKeys has nothing written before the step runs, and everything that was chosen until then after it.
func TestKeys(t *testing.T) {
	c := clustertest.New(t, "", nil)
	s := control.Keys(c)
	private, _, err := c.Certs.ServiceAccountKey() // by a step that was planned later
	if err != nil {
		t.Fatal(err)
	}
	here := runnertest.Debian12("control").Runner()
	change, err := s.Precheck(t.Context(), here)
	if err != nil || change == nil {
		t.Fatalf("%v, %v", change, err)
	}
	if want := "+ id\n+ kubernetes/ca\n+ kubernetes/admin\n+ kubernetes/sa\n"; change.Diff != want {
		t.Errorf("diff is\n%s, want\n%s", change.Diff, want)
	}
	if _, err := os.Stat(c.Certs.Dir); !os.IsNotExist(err) {
		t.Errorf("planning has written keys: %v", err)
	}
	if err := change.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if change, err := s.Precheck(t.Context(), here); change != nil || err != nil {
		t.Errorf("the second look finds %v, %v", change, err)
	}
	other := &pki.Store{Dir: c.Certs.Dir}
	if again, _, err := other.ServiceAccountKey(); err != nil || again != private {
		t.Errorf("another key was written: %v", err)
	}
	if id, err := other.ID(); err != nil || id != c.ID() || strings.ToLower(id) != id || len(id) < 26 {
		t.Errorf("ID %q, want %q: %v", id, c.ID(), err)
	}
}
