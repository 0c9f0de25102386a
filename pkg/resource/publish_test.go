package resource

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
)

// A set of the store is a repository that apt takes by its signature, and not when something in it changed.
func TestPublish(t *testing.T) {
	base, uris := publishedDebs(t, "conntrack", "socat")
	s := packageStore(t, base)
	set := resolve(t, s, &answers{text: uris}, false, "conntrack", "socat")
	if err := s.FetchPackages(t.Context(), set, nil); err != nil {
		t.Fatal(err)
	}
	dir := s.file(set.dir())
	if info, err := os.Stat(s.file(signingFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the private key: %v, %v", info, err)
	}
	first := contents(t, dir)
	if err := s.publish(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if first != contents(t, dir) {
		t.Errorf("published again, it differs: %s", cmp.Diff(first, contents(t, dir)))
	}
	if v, err := s.Verify(t.Context()); err != nil || len(v.Flaws) > 0 {
		t.Errorf("verified: %+v, %v", v, err)
	}
	if gone, err := s.Prune(t.Context(), []Item{set.Item()}, false); err != nil || len(gone) > 0 || first != contents(t, dir) {
		t.Errorf("pruned %+v, %v", gone, err)
	}
	for _, tool := range []string{"apt-get", "gpgv"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("there is no " + tool + " here to read the repository with")
		}
	}
	if out, err := aptUpdate(t, dir); err != nil || !strings.Contains(out, "socat") {
		t.Errorf("apt: %s, %v", out, err)
	}
	file := filepath.Join(dir, "InRelease")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(strings.Replace(string(text), "Origin: kubexm", "Origin: others", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := aptUpdate(t, dir); err == nil {
		t.Errorf("apt takes a changed index: %s", out)
	}
}

// What the store publishes is rewritten where any of it is gone, changed, or signed with a key that was lost.
func TestRepublish(t *testing.T) {
	base, uris := publishedDebs(t, "socat")
	s, set := holding(t, base, uris, "socat")
	dir := s.file(set.dir())
	for _, name := range []string{"Packages", "Release", "Release.gpg", "InRelease", "kubexm.asc", "../../signing.key"} {
		for _, how := range []string{"gone", "changed"} {
			file, err := filepath.Join(dir, name), error(nil)
			if how == "gone" {
				err = os.Remove(file)
			} else if name != "../../signing.key" {
				err = os.WriteFile(file, []byte("Origin: others\n"), 0o600)
			} else {
				continue // an error: see signingKey
			}
			if err != nil {
				t.Fatal(err)
			}
			v, err := s.Verify(t.Context())
			if err != nil || len(v.Flaws) != 1 || v.Flaws[0] != (Flaw{set.dir(), "its index or a signature of it is missing or wrong; written again"}) {
				t.Errorf("%s %s: %+v, %v", name, how, v.Flaws, err)
			}
			if v, err = s.Verify(t.Context()); err != nil || len(v.Flaws) > 0 {
				t.Errorf("%s %s, again: %+v, %v", name, how, v.Flaws, err)
			}
		}
	}
}

// A host's own release and pins do not keep packages of the store away.
func TestHostSettings(t *testing.T) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		t.Skip("there is no apt-get here")
	}
	base, uris := publishedDebs(t, "libwrap0")
	s := signingStore(t, base)
	if err := s.FetchPackages(t.Context(), resolve(t, s, &answers{text: uris}, false, "libwrap0"), nil); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	index, err := (&Repository{System: "debian12", Arch: "amd64", Store: s}).Index(dir)
	if err != nil {
		t.Fatal(err)
	}
	index["host.conf"] = []byte(`APT::Default-Release "stable"; APT::Architecture "amd64"; Dir::Etc::Preferences "` + dir + `/pins"; Dir::State::status "` + dir + `/status";` + "\n")
	index["pins"], index["status"] = []byte("Package: *\nPin: origin \"\"\nPin-Priority: -1\n"), nil
	for name, text := range index {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := `cd "$0"; mkdir -p lists/partial cache/archives/partial; export APT_CONFIG="$0/host.conf"
apt-get -c "$0/apt.conf" -qq update >&2 && apt-get -c "$0/apt.conf" -s install libwrap0`
	out, err := runner.New("here", connector.Local()).User(t.Context(), "sh -c "+runner.Quote(script, dir), nil)
	if err != nil || !strings.Contains(out, "\nInst libwrap0 (1.0 ") {
		t.Errorf("got %s, %v", out, err)
	}
}

// aptUpdate lets apt of this machine read the repository in dir, and nothing else, and tells what it has.
func aptUpdate(t *testing.T, dir string) (string, error) {
	t.Helper()
	root := t.TempDir()
	script := `set -e; cd "$0"; mkdir -p lists/partial cache/archives/partial; touch status
echo "deb [arch=amd64 signed-by=$1/kubexm.asc] file:$1 ./" >sources.list
o="-o Dir::Etc::SourceList=$0/sources.list -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$0/lists -o Dir::Cache=$0/cache
-o Dir::State::status=$0/status -o APT::Architecture=amd64 -o APT::Sandbox::User= -o Acquire::Languages=none"
apt-get $o -qq --error-on=any update >&2; apt-cache $o pkgnames`
	return runner.New("here", connector.Local()).User(t.Context(), "sh -c "+runner.Quote(script, root, dir), nil)
}

// contents is the text of all files of a folder.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	files, err := filepath.Glob(dir + "/*")
	for _, f := range files {
		text, readErr := os.ReadFile(f)
		if err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		b.WriteString(filepath.Base(f) + "\n" + string(text))
	}
	return b.String()
}
