package source

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Forward lets apt and dnf, which know nothing of Config.Access, read what an entry of it covers: by way of a server on
// the loopback of this machine, until Close. Their signatures and checksums are theirs to check, as ever.
type Forward struct {
	at     map[string]string // where to ask for what is below a URL; without Config.Access it is empty
	server *http.Server

	mu  sync.Mutex
	err error // why something could not be had
}

// Forward serves what is below those of the URLs that an entry of Access covers. Without any it starts no server.
func (c *Client) Forward(ctx context.Context, urls []string) (*Forward, error) {
	f := &Forward{at: map[string]string{}}
	handler, secret := http.NewServeMux(), rand.Text() // others on this machine have no business with the login
	for n, u := range urls {
		if door := c.doors.to(u); door != c.doors.common() && f.at[u] == "" {
			f.at[u] = fmt.Sprintf("/%s/%d/", secret, n)
			handler.Handle(f.at[u], http.StripPrefix(f.at[u], f.handler(door, u)))
		}
	}
	if len(f.at) == 0 {
		return f, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for apt or dnf: %w", err)
	}
	for u, path := range f.at {
		f.at[u] = "http://" + l.Addr().String() + path
	}
	f.server = &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = f.server.Serve(l) }() // ends with Close
	return f, nil
}

// URL is where to ask for what is below a URL: of the server on the loopback, or else the URL itself.
func (f *Forward) URL(below string) string { return cmp.Or(f.at[below], below) }

// handler answers with what is below a URL.
func (f *Forward) handler(d *door, below string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked := http.Header{}
		for _, k := range []string{"Range", "If-Range", "User-Agent"} {
			asked[k] = r.Header[k]
		}
		resp, err := Get(r.Context(), d.client, below+r.URL.EscapedPath(), asked)
		if err != nil {
			f.refuse(w, r, err)
			return
		}
		defer resp.Body.Close()
		for _, k := range []string{"Content-Length", "Content-Range", "Content-Type", "Last-Modified"} {
			w.Header()[k] = resp.Header[k]
		}
		w.WriteHeader(resp.StatusCode)
		if n, err := io.Copy(w, resp.Body); err != nil {
			if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "readfrom" { // it names the loopback
				err = op.Err
			}
			f.note(r, fmt.Errorf("GET %s: broke off at byte %d%s: %w", resp.Request.URL.Redacted(), n, Of(resp.ContentLength), err))
			panic(http.ErrAbortHandler) // a file that is cut short must not look whole
		}
	}
}

// Of completes "byte 5" to "byte 5 of 7"; nothing where the total is not known, as -1.
func Of(total int64) string {
	if total < 0 {
		return ""
	}
	return fmt.Sprintf(" of %d", total)
}

// refuse passes an error on. That there is no such file is no news: apt looks for some that need not be.
func (f *Forward) refuse(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusBadGateway
	if status, ok := errors.AsType[*StatusError](err); ok {
		code = status.Code
	}
	if code != http.StatusNotFound {
		f.note(r, err)
	}
	http.Error(w, err.Error(), code)
}

// note keeps the first error, unless the reader has hung up.
func (f *Forward) note(r *http.Request, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil && r.Context().Err() == nil {
		f.err = err
	}
}

// Close ends the server, and adds to the error of who read from it why there was nothing.
func (f *Forward) Close(err error) error {
	if f.server != nil {
		_ = f.server.Close()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		return nil
	}
	return errors.Join(f.err, err)
}
