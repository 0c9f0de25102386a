package distro

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// tool is a machine whose tool answers with a text, or fails.
type tool struct {
	connector.Connector
	text string
	err  error
}

func (f tool) Exec(_ context.Context, c connector.Cmd) error {
	_, _ = c.Stdout.Write([]byte(f.text)) // to memory
	return f.err
}

// TestResolveTroubles shows what is said when resolving fails.
func TestResolveTroubles(t *testing.T) {
	exit := func(code int, text string) tool { return tool{err: connector.NewExitError("sh", code, text)} }
	for name, c := range map[string]struct {
		system string
		tool   tool
		want   string
		advice string
	}{
		"no apt":     {"debian12", exit(noTool, ""), "this machine has no apt-get", "install apt"},
		"no keys":    {"ubuntu2204", exit(noKeys, ""), "no /usr/share/keyrings/ubuntu-archive-keyring.gpg", "install the package ubuntu-keyring"},
		"no dnf":     {"rocky9", exit(noTool, ""), "this machine has no dnf", "install dnf and dnf-plugins-core"},
		"no network": {"rocky9", exit(1, "Curl error (6)"), "dnf with its command download: Curl error", "proxy"},
		"an answer":  {"debian12", tool{text: "'http://x/y_1_all.deb' y_1_all.deb 7 MD5Sum:00\n"}, `unexpected answer "'http://x/y_1_all.deb'`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sys, err := Find(c.system)
			if err != nil {
				t.Fatal(err)
			}
			_, err = sys.Resolve(t.Context(), runner.New("here", c.tool), "amd64", []string{"y"}, sys.Sources("amd64"))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(fault.Advice(err), c.advice) {
				t.Errorf("got %v, advice %s", err, fault.Advice(err))
			}
		})
	}
}

// TestMirrorIsNoCommand names mirrors that a shell could take for commands.
func TestMirrorIsNoCommand(t *testing.T) {
	here, dir := runner.New("here", connector.Local()), t.TempDir()
	for name, source := range map[string]string{"expanded": "$(>" + dir + "/made)/", "ended": "\nEND\n>" + dir + "/made\n"} {
		source = "file:" + dir + "/" + source
		_, asApt := System{Manager: "apt", keys: keyring{file: "/dev/null"}}.Resolve(t.Context(), here, "amd64", []string{"socat"}, []string{source + " stable main"})
		_, asDnf := System{Manager: "dnf", Version: "9"}.Resolve(t.Context(), here, "amd64", []string{"socat"}, []string{source})
		if _, err := os.Stat(dir + "/made"); err == nil || asApt == nil || asDnf == nil {
			t.Errorf("%s: a mirror was run: %v, %v", name, asApt, asDnf)
		}
	}
}
