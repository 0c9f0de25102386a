package distro

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
)

// askApt lets apt tell what it would fetch for a machine without any package. It keeps this
// machine's settings of how to reach servers, and none of its sources, keys, pins and architectures. Sources come by
// standard input: where they are served may be nobody's to know.
const askApt = `command -v apt-get >/dev/null || exit 71
[ -r %[1]s ] || exit 72
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT; trap 'exit 143' TERM INT
chmod 755 "$T"; mkdir -p "$T/state/lists/partial" "$T/cache/archives/partial"; : >"$T/status"
(umask 077; cat >"$T/sources.list")
cat >"$T/apt.conf" <<END
Dir::State "$T/state"; Dir::State::status "$T/status"; Dir::Cache "$T/cache";
Dir::Etc::SourceList "$T/sources.list"; Dir::Etc::SourceParts "/dev/null"; Dir::Etc::Trusted "/dev/null"; Dir::Etc::TrustedParts "/dev/null";
` + noPins + `APT::Architecture "%[2]s"; APT::Architectures "%[2]s"; APT::Update::Error-Mode "any"; Acquire::http::Proxy::127.0.0.1 "DIRECT"; Acquire::Retries "3"; Acquire::ForceHash "SHA256";
` + clearHooks + `END
apt-get -c "$T/apt.conf" -qq update >&2 || exit
for names in %[3]s; do apt-get -c "$T/apt.conf" -qq -y --no-install-recommends --print-uris install $names || exit; done
`

// makesRoom are packages that go where another one comes, as Debian has one time service at a time. They are taken
// along: hosts that had them get them again when the cluster is deleted.
var makesRoom = map[string]string{"chrony": "systemd-timesyncd"}

func (s System) resolveDebs(ctx context.Context, here *runner.Runner, arch string, names, sources []string) ([]File, error) {
	lines := make([]string, len(sources))
	for i, src := range sources {
		lines[i] = "deb [signed-by=" + s.keys.file + "] " + src
	}
	together := []string{strings.Join(names, " ")} // what is installed at a time
	for _, n := range names {
		if gone := makesRoom[n]; gone != "" {
			together = append(together, gone)
		}
	}
	out, err := here.User(ctx, fmt.Sprintf(askApt, runner.Quote(s.keys.file), arch, runner.Quote(together...)), strings.NewReader(strings.Join(lines, "\n")+"\n"))
	if err != nil {
		return nil, toolError(err, "apt-get", "apt", s.keys)
	}
	var files []File
	for line := range strings.Lines(out) { // 'URL' name size hash
		f := strings.Fields(line)
		if len(f) != 4 {
			continue
		}
		from := strings.Trim(f[0], "'")
		size, err := strconv.ParseInt(f[2], 10, 64)
		sum, ok := strings.CutPrefix(f[3], "SHA256:")
		u, wrong := url.Parse(from)
		if err = errors.Join(err, wrong); err != nil || !ok {
			return nil, fmt.Errorf("apt-get --print-uris: unexpected answer %q", strings.TrimSpace(line))
		}
		files = append(files, File{path.Base(u.Path), from, size, sum})
	}
	return files, nil
}
