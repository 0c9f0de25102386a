package source

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	neturl "net/url"
	"strconv"
	"syscall"
	"time"

	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// ErrStalled is the cause to cancel a request with when a server has sent nothing for Retry.Stall: another try may help.
var ErrStalled = errors.New("the server sent nothing for too long")

// StatusError is an answer other than the one hoped for, of a server or of the proxy before it.
type StatusError struct {
	Code   int    // of HTTP
	what   string // was asked: "GET https://..."
	proxy  bool   // it is the proxy's
	status string
	after  time.Duration // how long the server asks to wait
}

func (e *StatusError) Error() string { return e.what + ": " + e.status }

// Get asks for a URL. Answers other than 200 and 206 are errors, each a *StatusError; what another try may cure is
// transient (fault.Transient). Who gets an answer closes its body. header may be nil.
func Get(ctx context.Context, client remote.Client, url string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("Accept-Encoding", "identity") // else an archive could arrive unpacked
	resp, err := client.Do(req)
	if fault.IsTransient(err) { // a registryClient has said it all
		return nil, err
	}
	if err != nil {
		if outer, ok := errors.AsType[*neturl.Error](err); ok {
			err = outer.Err
		}
		if err == io.EOF { //nolint:errorlint // that of a proxy says so
			err = errors.New("the server closed the connection without an answer")
		}
		return nil, fmt.Errorf("GET %s: %w", req.URL.Redacted(), Cause(ctx, err))
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
		return resp, nil
	}
	return nil, refusal(req, resp)
}

// refusal is the error of an answer that is not the one hoped for.
func refusal(req *http.Request, resp *http.Response) error {
	resp.Body.Close()
	status := &StatusError{Code: resp.StatusCode, what: req.Method + " " + req.URL.Redacted(), status: resp.Status, after: retryAfter(resp.Header.Get("Retry-After"))}
	if worthAnother(resp.StatusCode) {
		return fault.Transient(status)
	}
	return ExplainLogin(status, req.URL.Scheme+"://"+req.URL.Host)
}

// ExplainLogin adds the next move to the error of a server ("https://host:port") that may want another login; others it returns as they are.
func ExplainLogin(err error, server string) error {
	code := 0
	if status, ok := errors.AsType[*StatusError](err); ok {
		code = status.Code
	} else if answer, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		code = answer.StatusCode
	}
	if code != http.StatusUnauthorized && code != http.StatusForbidden && !errors.Is(err, auth.ErrBasicCredentialNotFound) {
		return err
	}
	return fault.Advise(err, "if that server needs a login, give or correct the one in "+field(server)+" (username, and passwordFrom or password); for images, docker's login is used if there is none")
}

// Missing reports whether a server says that it does not have what it was asked for.
func Missing(err error) bool {
	status, answered := errors.AsType[*StatusError](err)
	return answered && status.Code == http.StatusNotFound || errors.Is(err, errdef.ErrNotFound)
}

// Answered reports whether it was the server that refused or failed: it was reached.
func Answered(err error) bool {
	if status, is := errors.AsType[*StatusError](err); is {
		return !status.proxy
	}
	_, is := errors.AsType[*errcode.ErrorResponse](err)
	return is || Missing(err) || errors.Is(err, auth.ErrBasicCredentialNotFound)
}

// Explain adds the next move to the error of a request to the place, unless this machine's disk or its user ended it.
func (p Place) Explain(err error) error {
	if Local(err) || errors.Is(err, context.Canceled) {
		return err
	}
	advice := "check that this machine reaches that server: the proxy variables (HTTPS_PROXY, NO_PROXY), or a mirror in spec.source (zone, mirrors)"
	_, answered := errors.AsType[*StatusError](err)
	switch {
	case p.Entry != "" && Missing(err):
		advice = "check that this version exists, and that the mirror of " + p.Entry + " has it"
	case p.Entry != "":
		advice = "check that the mirror of " + p.Entry + " is up and gives all that it has, or name another one in spec.source.mirrors"
	case Missing(err), answered && !fault.IsTransient(err):
		advice = "check that this version exists upstream"
	}
	return fault.Advise(err, advice)
}

// registryClient makes of answers that another try may cure the errors that Get makes of them.
type registryClient struct{ *auth.Client }

func (c registryClient) Do(req *http.Request) (*http.Response, error) {
	resp, err := c.Client.Do(req)
	if err == nil && worthAnother(resp.StatusCode) {
		return nil, refusal(req, resp)
	}
	return resp, err
}

func worthAnother(status int) bool {
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}

func retryAfter(value string) time.Duration {
	if seconds, err := strconv.Atoi(value); err == nil {
		return time.Duration(seconds) * time.Second
	}
	when, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return time.Until(when)
}

// Cause returns why a request, or the transfer of its answer, failed with err: for what ended its context, or else err. It is
// transient where another try may help.
func Cause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, ErrStalled) {
		return passing(cmp.Or(cause, err))
	}
	return cause
}

// passing marks the error of a request as transient where another try may help.
func passing(err error) error {
	answer, answered := errors.AsType[*errcode.ErrorResponse](err)
	dns, unknown := errors.AsType[*net.DNSError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	status, refused := errors.AsType[*StatusError](err)
	switch {
	case answered && !worthAnother(answer.StatusCode), refused && !worthAnother(status.Code), unknown && dns.IsNotFound, untrusted,
		errors.Is(err, http.ErrSchemeMismatch), errors.Is(err, auth.ErrBasicCredentialNotFound), errors.Is(err, errdef.ErrNotFound), errors.Is(err, errdef.ErrUnsupported),
		errors.Is(err, content.ErrMismatchedDigest):
		return err
	}
	return fault.Transient(err)
}

// Local reports whether err is of this machine's disk, which no other server cures.
func Local(err error) bool {
	_, ofFile := errors.AsType[*fs.PathError](err)
	return ofFile || errors.Is(err, syscall.ENOSPC)
}

// Retry is how patient fetching is.
type Retry struct {
	Rounds  int           // how often a place is tried that fails in passing and gives nothing new
	Pause   time.Duration // before the second round, varied by half; then doubled each time
	Longest time.Duration // the longest pause, also when a server asks for more
	Stall   time.Duration // how long a server may send nothing; for who calls Get to watch
}

// Try calls fn with one place after another until it succeeds. Where it failed in passing (fault.Transient) it is called
// again in later rounds, after a pause. The error is the last of each place, joined; or the first that no
// other place cures, as ctx has ended or this machine's disk is at fault.
func Try[T any](ctx context.Context, r Retry, places []T, fn func(T) error) error {
	errs := make([]error, len(places))
	for round, pause := 1, r.Pause; ; round, pause = round+1, 2*pause {
		wait := pause/2 + rand.N(pause)
		again := false
		for i, place := range places {
			if errs[i] != nil && !fault.IsTransient(errs[i]) {
				continue
			}
			if errs[i] = fn(place); errs[i] == nil {
				return nil
			}
			if ctx.Err() != nil || Local(errs[i]) {
				return errs[i]
			}
			if status, ok := errors.AsType[*StatusError](errs[i]); ok {
				wait = max(wait, status.after)
			}
			again = again || fault.IsTransient(errs[i])
		}
		if !again || round == r.Rounds {
			return errors.Join(errs...)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(wait, r.Longest)):
		}
	}
}
