package host

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMissing(t *testing.T) {
	got := Missing([]Tool{{"sh", "dash"}, {"no-such-program-1", "one"}, {"/no/such/file", "two"}, {"no-such-program-2", "one"}, {"/proc/self", "procfs"}})
	if want := []string{"one", "two"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestOutput(t *testing.T) {
	out, err := Output(exec.CommandContext(t.Context(), "sh", "-c", "echo out; echo why >&2; exit 3"))
	if out != "out\n" || err == nil || !strings.Contains(err.Error(), "exit status 3: why") {
		t.Errorf("%q %v", out, err)
	}
}

func TestFree(t *testing.T) {
	if err := Free(t.TempDir(), 1); err != nil {
		t.Error(err)
	}
	if err := Free(t.TempDir(), 1<<60); err == nil {
		t.Error("there is no disk of an exabyte")
	}
	if err := Free(filepath.Join(t.TempDir(), "nothing"), 1); err == nil {
		t.Error("free space where nothing is")
	}
}

func TestAptSources(t *testing.T) {
	sources, form := aptSources("trixie")
	if !strings.Contains(sources, "trixie-security") || strings.Contains(sources, "bookworm") || form != ".sources" && form != ".list" {
		t.Errorf("%s:\n%s", form, sources)
	}
}

func TestAptOption(t *testing.T) {
	dump := `APT "";
Acquire::http::Proxy "http://proxy:3128";
Acquire::Check-Valid-Until "false";
Acquire::IndexTargets::deb::Packages "";
Acquire::httpx "no";
`
	want := []string{`Acquire::http::Proxy "http://proxy:3128";`, `Acquire::Check-Valid-Until "false";`}
	if got := aptOption.FindAllString(dump, -1); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
