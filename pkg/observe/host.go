package observe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// controller asks a program that listens on its host's loopback alone, with a
// certificate that it signed itself and forgets when it ends.
func controller(l *look, name, url string) question {
	return func(ctx context.Context, r *runner.Runner) { l.component(r.Host, name, "", healthz(ctx, r, url)) }
}

// timer asks systemd how the script of a timer went the last time.
func timer(l *look, name string) question {
	return func(ctx context.Context, r *runner.Runner) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		out, err := r.Sh(ctx, runner.Inputs("NAME", name)+`systemctl -q is-active "$NAME.timer" || echo 'its timer does not run'
if [ failed = "$(systemctl is-failed "$NAME.service")" ]; then echo 'it failed the last time:'; journalctl -q --no-pager -o cat -n 2 "_SYSTEMD_UNIT=$NAME.service"; fi`)
		if err == nil && out != "" {
			err = errors.New(human.Line(out))
		}
		l.component(r.Host, strings.TrimPrefix(name, "kubexm-"), "", err)
	}
}

// healthz asks for a page from where the host is.
func healthz(ctx context.Context, r *runner.Runner, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DialContext: r.Dial, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see controller; the way there is SSH
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, human.MostText))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(answer)))
	}
	return err
}

// registry asks the private registry as nodes do.
func (l *look) registry(ctx context.Context, r *runner.Runner) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := l.Certs.CA(pki.Registry)
	if err == nil {
		at := l.Registry()
		at.Dial = r.Dial
		err = at.Ping(ctx)
	}
	l.component(r.Host, "registry", "", err)
}
