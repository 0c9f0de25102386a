package distro

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/runner"
)

//go:embed scripts/*.sh
var scripts embed.FS

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
	script := runner.Inputs("KEYS", s.keys.file, "ARCH", arch, "CONF", noPins+clearHooks) + "set -- " + runner.Quote(together...) + "\n" + runner.Script(scripts, "apt")
	out, err := here.User(ctx, script, strings.NewReader(strings.Join(lines, "\n")+"\n"))
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
