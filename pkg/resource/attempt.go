package resource

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

var errStalled = errors.New("the server sent nothing for too long")

// statusError is an answer other than the one hoped for.
type statusError struct {
	what   string // was asked: "GET https://..."
	code   int
	status string
	after  time.Duration // how long the server asks to wait
}

func (e *statusError) Error() string { return e.what + ": " + e.status }

// get asks for a URL. Other answers than 200 and 206 are errors.
func get(ctx context.Context, client doer, url string, header http.Header) (*http.Response, error) {
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
		return nil, fmt.Errorf("GET %s: %w", req.URL.Redacted(), broken(ctx, err))
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
		return resp, nil
	}
	return nil, refusal(req, resp)
}

// refusal is the error of an answer that is not the one hoped for.
func refusal(req *http.Request, resp *http.Response) error {
	resp.Body.Close()
	status := &statusError{what: req.Method + " " + req.URL.Redacted(), code: resp.StatusCode, status: resp.Status, after: retryAfter(resp.Header.Get("Retry-After"))}
	if worthAnother(resp.StatusCode) {
		return fault.Transient(status)
	}
	return explainLogin(status, req.URL.Scheme+"://"+req.URL.Host)
}

// explainLogin adds the next move to the error of a server that may want another log-in.
func explainLogin(err error, server string) error {
	code := 0
	if status, ok := errors.AsType[*statusError](err); ok {
		code = status.code
	} else if answer, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		code = answer.StatusCode
	}
	if code != http.StatusUnauthorized && code != http.StatusForbidden && !errors.Is(err, auth.ErrBasicCredentialNotFound) {
		return err
	}
	return fault.Advise(err, "if that server wants a log-in, give or correct the one in "+field(server)+" (username, and passwordFrom or password); for images, docker's log-in counts where there is none")
}

// registryClient makes of answers that another try may cure the errors that get makes of them.
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

// broken returns why a transfer failed: for what ended its context, or else err.
func broken(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, errStalled) {
		return passing(cmp.Or(cause, err))
	}
	return cause
}

// passing marks the error of a request as transient where another try may help.
func passing(err error) error {
	answer, answered := errors.AsType[*errcode.ErrorResponse](err)
	dns, unknown := errors.AsType[*net.DNSError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	status, refused := errors.AsType[*statusError](err)
	switch {
	case answered && !worthAnother(answer.StatusCode), refused && !worthAnother(status.code), unknown && dns.IsNotFound, untrusted,
		errors.Is(err, http.ErrSchemeMismatch), errors.Is(err, auth.ErrBasicCredentialNotFound), errors.Is(err, errdef.ErrNotFound), errors.Is(err, errdef.ErrUnsupported),
		errors.Is(err, content.ErrMismatchedDigest):
		return err
	}
	return fault.Transient(err)
}

// local reports whether err is of this machine's disk, which no other server cures.
func local(err error) bool {
	_, ofFile := errors.AsType[*fs.PathError](err)
	return ofFile || errors.Is(err, syscall.ENOSPC)
}

// retry is how patient fetching is.
type retry struct {
	rounds  int           // how often a place is tried that fails in passing and gives nothing new
	pause   time.Duration // before the second round, varied by half; then doubled each time
	longest time.Duration // the longest pause, also when a server asks for more
	stall   time.Duration // how long a server may send nothing
}

// tryAll calls fn with one place after another until it succeeds. Where it
// failed in passing it is called again in later rounds, after a pause.
func tryAll[T any](ctx context.Context, r retry, places []T, fn func(T) error) error {
	errs := make([]error, len(places))
	for round, pause := 1, r.pause; ; round, pause = round+1, 2*pause {
		wait := pause/2 + rand.N(pause)
		again := false
		for i, place := range places {
			if errs[i] != nil && !fault.IsTransient(errs[i]) {
				continue
			}
			if errs[i] = fn(place); errs[i] == nil {
				return nil
			}
			if ctx.Err() != nil || local(errs[i]) {
				return errs[i]
			}
			var status *statusError
			if errors.As(errs[i], &status) {
				wait = max(wait, status.after)
			}
			again = again || fault.IsTransient(errs[i])
		}
		if !again || round == r.rounds {
			return errors.Join(errs...)
		}
		if err := sleep(ctx, min(wait, r.longest)); err != nil {
			return err
		}
	}
}
