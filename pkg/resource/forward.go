package resource

import (
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

// forward lets apt and dnf, which know nothing of Source.Access, read what an entry of it covers: by way of a server on
// the loopback of this machine, for as long as they work. Their signatures and checksums are theirs to check, as ever.
type forward struct {
	at     map[string]string // where to ask for what is below a URL; without Source.Access it is empty
	server *http.Server

	mu  sync.Mutex
	err error // why something could not be had
}

// forward serves those of the URLs that are covered.
func (s *Store) forward(ctx context.Context, urls []string) (*forward, error) {
	f := &forward{at: map[string]string{}}
	handler, secret := http.NewServeMux(), rand.Text() // others on this machine have no business with the log-in
	for n, u := range urls {
		if door := s.doors.to(u); door != s.doors.common() && f.at[u] == "" {
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
	go func() { _ = f.server.Serve(l) }() // ends with close
	return f, nil
}

// handler answers with what is below a URL.
func (f *forward) handler(d *door, below string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked := http.Header{}
		for _, k := range []string{"Range", "If-Range", "User-Agent"} {
			asked[k] = r.Header[k]
		}
		resp, err := get(r.Context(), d.client, below+r.URL.EscapedPath(), asked)
		if err != nil {
			f.refuse(w, r, err)
			return
		}
		defer resp.Body.Close()
		for _, k := range []string{"Content-Length", "Content-Range", "Content-Type", "Last-Modified"} {
			w.Header()[k] = resp.Header[k]
		}
		w.WriteHeader(resp.StatusCode)
		if _, err := io.Copy(w, resp.Body); err != nil {
			f.note(r, err)
			panic(http.ErrAbortHandler) // a file that is cut short must not look whole
		}
	}
}

// refuse passes an error on. That there is no such file is no news: apt looks for some that need not be.
func (f *forward) refuse(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusBadGateway
	if status, ok := errors.AsType[*statusError](err); ok {
		code = status.code
	}
	if code != http.StatusNotFound {
		f.note(r, err)
	}
	http.Error(w, err.Error(), code)
}

// note keeps the first error, unless the reader has hung up.
func (f *forward) note(r *http.Request, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil && r.Context().Err() == nil {
		f.err = err
	}
}

// close ends the server, and adds to the error of who read from it why there was nothing.
func (f *forward) close(err error) error {
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
