package resource

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
)

// apt is a machine whose apt reads an index from the first source, and finds socat in it. Like the real one it knows no login.
type apt struct{ connector.Connector }

var firstSource = regexp.MustCompile(`deb \[[^]]*\] (http\S*) `)

func (apt) Exec(ctx context.Context, c connector.Cmd) error {
	sources, err := io.ReadAll(c.Stdin)
	if err != nil {
		return err
	}
	base := firstSource.FindStringSubmatch(string(sources))[1]
	fails := func(text string) error {
		return connector.NewExitError(c.Line, 100, "E: "+strings.ReplaceAll(text, base, "BASE/"))
	}
	if !strings.HasPrefix(base, "http://127.0.0.1:") {
		return fails(base + " is outside of the test")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"dists/bookworm/InRelease", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fails(err.Error())
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fails(base + " " + resp.Status)
	}
	index, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.Stdout, string(index), base)
	return err
}

// packages gets the packages that a mirror has, and their size.
func (m *mirror) packages(t *testing.T, s *Store) (size int64, err error) {
	deb := debOf("libwrap0")
	s.source.Mirrors["http://deb.debian.org/"] = m.Server.URL + "/debs"
	m.mu.Lock()
	m.files["/debs/debian/dists/bookworm/InRelease"] = fmt.Appendf(nil, "'%%spool/libwrap0_1_amd64.deb' libwrap0_1_amd64.deb %d SHA256:%s\n", len(deb), sumOf(deb))
	m.files["/debs/debian/pool/libwrap0_1_amd64.deb"] = deb
	m.mu.Unlock()
	set, err := s.ResolvePackages(t.Context(), runner.New("here", apt{}), "debian12", "amd64", []string{"libwrap0"}, false)
	if err != nil {
		return -1, err
	}
	if from := set.Files[0].URL; from != "http://deb.debian.org/debian/pool/libwrap0_1_amd64.deb" {
		t.Errorf("the lock would say %s", from)
	}
	err = s.FetchPackages(t.Context(), set, nil)
	if _, kept := os.Stat(filepath.Join(s.file(set.dir()), set.Files[0].Name)); (kept == nil) != (err == nil) {
		t.Errorf("afterwards: %v, %v", kept, err)
	}
	return s.LookPackages(set).Size, err
}
