package place_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/backup/place"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

const backup = "prod-20261125T130501Z.tar.zst.age"

// big is of two parts.
var big = bytes.Repeat([]byte("0123456789abcdef"), 1<<20+1)

func gives(data []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.Copy(w, bytes.NewReader(data)); return err }
}

func read(t *testing.T, p place.Place, name string) ([]byte, error) {
	t.Helper()
	r, err := p.Open(t.Context(), name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestS3(t *testing.T) {
	for name, encrypted := range map[string]bool{"TLS": true, "no TLS": false} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, encrypted)
			same(t, s.place(t), "s3://backups/site/a")
			if len(s.uploads) != 0 || s.aborted == 0 {
				t.Errorf("%d uploads are left, %d aborted", len(s.uploads), s.aborted)
			}
			for key := range s.objects {
				if !strings.HasPrefix(key, "site/a/") {
					t.Errorf("stored elsewhere: %s", key)
				}
			}
		})
	}
}

// TestS3Fails lets a server fail: nothing is stored, nothing is left, and the error says what, where, why and what to do.
func TestS3Fails(t *testing.T) {
	const where = " s3://backups/site/a at https://127.0.0.1"
	for name, tt := range map[string]struct {
		fail, how string
		times     int
		do        string // put, open, list or remove
		err       string // "" : it works in spite of it
		advice    string
		again     bool
		requests  int // of that kind; 0: any number
	}{
		"forbidden to begin":     {"create", "403", 0, "put", "AccessDenied: that is how it is (request R1)", "s3:PutObject", false, 1},
		"forbidden in between":   {"part", "403", 0, "put", "AccessDenied", "s3:PutObject", false, 1},
		"trouble at the end":     {"complete", "500", 0, "put", "InternalError", "try again later", true, 3},
		"trouble that passes":    {"part", "500", 2, "put", "", "", false, 4},
		"cut at a part":          {"part", "cut", 0, "put", "the connection was cut", "run it again", true, 3},
		"cut once":               {"part", "cut", 1, "put", "", "", false, 3},
		"cut at the end":         {"complete", "cut", 0, "put", "the connection was cut", "run it again", true, 3},
		"answer lost at the end": {"complete", "lost", 1, "put", "", "", false, 2},
		"upload lost":            {"complete", "NoSuchUpload", 0, "put", "NoSuchUpload", "a rule of the bucket", true, 1},
		"no bucket":              {"create", "NoSuchBucket", 0, "put", "NoSuchBucket", "make the bucket backups", false, 1},
		"no bucket to list":      {"list", "NoSuchBucket", 0, "list", "NoSuchBucket", "make the bucket backups", false, 1},
		"forbidden to list":      {"list", "403", 0, "list", "AccessDenied", "s3:ListBucket", false, 1},
		"not S3":                 {"list", "page", 0, "list", "XML", "serves S3", false, 0},
		"forbidden to read":      {"get", "403", 0, "open", "AccessDenied", "s3:GetObject", false, 1},
		"cut while reading":      {"get", "cut", 0, "open", "the connection was cut", "run it again", true, 1},
		"damaged":                {"get", "corrupt", 0, "open", "checksum mismatch", "use another one", false, 1},
		"trouble while reading":  {"get", "500", 1, "open", "", "", false, 2},
		"forbidden to remove":    {"delete", "403", 0, "remove", "AccessDenied", "s3:DeleteObject", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, true)
			p := s.place(t)
			if tt.do != "put" {
				if err := p.Put(t.Context(), backup, gives(big)); err != nil {
					t.Fatal(err)
				}
			}
			s.fail, s.how, s.times = tt.fail, tt.how, tt.times
			err := map[string]func() error{
				"put":    func() error { return p.Put(t.Context(), backup, gives(big)) },
				"open":   func() error { _, err := read(t, p, backup); return err },
				"list":   func() error { _, err := p.List(t.Context(), "prod"); return err },
				"remove": func() error { return p.Remove(t.Context(), backup) },
			}[tt.do]()
			if n := s.requests[tt.fail]; tt.requests > 0 && n != tt.requests {
				t.Errorf("%d requests of the kind", n)
			}
			stored, left := len(s.objects), len(s.uploads)
			if tt.err == "" {
				if err != nil || stored != 1 || left != 0 {
					t.Fatalf("%v; %d stored, %d uploads left", err, stored, left)
				}
				if got, err := read(t, p, backup); err != nil || !bytes.Equal(got, big) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				return
			}
			if tt.do == "put" && (stored != 0 || left != 0 && tt.how != "NoSuchUpload") {
				t.Errorf("%d stored, %d uploads left", stored, left)
			}
			said(t, err, where, tt.err, tt.advice)
			if fault.IsTransient(err) != tt.again {
				t.Errorf("transient is not %v: %v", tt.again, err)
			}
		})
	}
}

// said checks the text of an error, which is one line without a secret, and its advice.
func said(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("it went well")
	}
	advice := texts[len(texts)-1]
	for _, text := range texts[:len(texts)-1] {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("it does not say %q: %v", text, err)
		}
	}
	if got := fault.Advice(err); !strings.Contains(got, advice) {
		t.Errorf("advice %q, want %q; %v", got, advice, err)
	}
	if all := err.Error() + fault.Advice(err); strings.Contains(all, secretKey) || strings.Contains(all, "\n") {
		t.Errorf("a secret, or several lines: %s", all)
	}
}

// TestS3Replaces: an upload that fails leaves the object that is there.
func TestS3Replaces(t *testing.T) {
	s := serve(t, true)
	p := s.place(t)
	if err := p.Put(t.Context(), backup, gives([]byte("old"))); err != nil {
		t.Fatal(err)
	}
	s.fail, s.how = "complete", "NoSuchUpload" // as when another removed it: it is not that of another's upload
	said(t, p.Put(t.Context(), backup, gives([]byte("new"))), "NoSuchUpload", "")
	if got, err := read(t, p, backup); string(got) != "old" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestS3Panics: a panic must not look like the end of what is stored.
func TestS3Panics(t *testing.T) {
	s := serve(t, true)
	ended := make(chan struct{})
	s.fail, s.during = "abort", func() { close(ended) }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is hidden")
			}
		}()
		_ = s.place(t).Put(t.Context(), backup, func(w io.Writer) error { _, _ = w.Write([]byte("x")); panic("a bug") })
	}()
	<-ended
	if s.requests["complete"] != 0 {
		t.Error("it was stored")
	}
}

// TestS3Unchecked reads from a server that knows no checksum: what it sends is taken.
func TestS3Unchecked(t *testing.T) {
	s := serve(t, true)
	s.noSum, s.fail, s.how = true, "get", "corrupt"
	p := s.place(t)
	if err := p.Put(t.Context(), backup, gives([]byte("abc"))); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, p, backup); err != nil || string(got) != "acc" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestS3Cancel(t *testing.T) {
	for _, at := range []string{"create", "part", "complete"} {
		t.Run(at, func(t *testing.T) {
			s := serve(t, true)
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("stopped by the user")
			s.fail, s.times, s.how, s.during = at, 1, "cut", func() { cancel(why) }
			err := s.place(t).Put(ctx, backup, gives(big))
			if !errors.Is(err, why) || len(s.objects) != 0 || len(s.uploads) != 0 {
				t.Errorf("%v; stored %d, left %d", err, len(s.objects), len(s.uploads))
			}
		})
	}
}

func TestS3Unreachable(t *testing.T) {
	s, plain := serve(t, true), serve(t, false)
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, tt := range map[string]struct {
		change      func(*place.S3)
		err, advice string
	}{
		"nobody there":         {func(c *place.S3) { c.Endpoint = gone.URL }, "connection refused", "the server of the bucket is up"},
		"unknown authority":    {func(c *place.S3) { c.CA = nil }, "unknown authority", "give the CA certificate of 127.0.0.1"},
		"of another name":      {func(c *place.S3) { c.Endpoint = strings.Replace(c.Endpoint, "127.0.0.1", "localhost", 1) }, "certificate", "name"},
		"no TLS":               {func(c *place.S3) { c.Endpoint = strings.Replace(plain.URL, "http:", "https:", 1) }, "HTTP response", "begins with http://"},
		"TLS unexpected":       {func(c *place.S3) { c.Endpoint = strings.Replace(c.Endpoint, "https:", "http:", 1) }, "", "https://"},
		"wrong key":            {func(c *place.S3) { c.AccessKey = "other" }, "InvalidAccessKeyId", "correct the access key"},
		"another bucket":       {func(c *place.S3) { c.Bucket = "other" }, "NoSuchBucket", "make the bucket other"},
		"proxy":                {func(c *place.S3) { c.Proxy = by(gone.URL) }, "proxyconnect", "the proxy is up"},
		"no such host":         {func(c *place.S3) { c.Endpoint = "https://s3.invalid" }, "s3.invalid", "DNS"},
		"bucket in the host's": {func(c *place.S3) { c.Endpoint, c.VirtualHost = "https://s3.invalid", true }, "backups.s3.invalid", "DNS"},
	} {
		t.Run(name, func(t *testing.T) {
			c := s.config()
			tt.change(&c)
			p, err := place.NewS3(c)
			if err != nil {
				t.Fatal(err)
			}
			said(t, p.Put(t.Context(), backup, gives([]byte("x"))), "storing "+backup+" in s3://", tt.err, tt.advice)
		})
	}
}

func by(proxy string) func(*http.Request) (*url.URL, error) {
	return func(*http.Request) (*url.URL, error) { return url.Parse(proxy) }
}

func TestNewS3(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*place.S3)
		want   string
	}{
		"no scheme":     {func(c *place.S3) { c.Endpoint = "minio.example.org:9000" }, "no URL"},
		"a path":        {func(c *place.S3) { c.Endpoint = "https://minio.example.org/bucket" }, "no URL"},
		"a password":    {func(c *place.S3) { c.Endpoint = "https://me:" + secretKey + "@minio.example.org" }, "no URL"},
		"no URL at all": {func(c *place.S3) { c.Endpoint = "https://me:" + secretKey + "\x7f@minio" }, "no URL"},
		"no bucket":     {func(c *place.S3) { c.Bucket = "" }, "bucket"},
		"bad bucket":    {func(c *place.S3) { c.Bucket = "a/b" }, "bucket"},
		"no key":        {func(c *place.S3) { c.SecretKey = secret.Secret{} }, "secret key"},
		"bad CA":        {func(c *place.S3) { c.CA = []byte("x") }, "no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			c := place.S3{Endpoint: "https://minio.example.org:9000", Bucket: "backups", AccessKey: accessKey, SecretKey: secret.New(secretKey)}
			if p, err := place.NewS3(c); err != nil || p.String() != "s3://backups" {
				t.Fatal(p, err)
			}
			tt.change(&c)
			_, err := place.NewS3(c)
			said(t, err, tt.want, "")
		})
	}
}

// same is what all kinds of places must do alike.
func same(t *testing.T, p place.Place, called string) {
	t.Helper()
	if p.String() != called {
		t.Errorf("it is called %s", p)
	}
	if all, err := p.List(t.Context(), "prod"); err != nil || len(all) != 0 {
		t.Errorf("at first: %v, %v", all, err)
	}
	const newer, other = "prod-20261126T130501Z.tar.zst", "prod-2-20261125T130501Z.tar.zst.age"
	for name, data := range map[string][]byte{newer: nil, backup: big, other: []byte("other"), "prod-notes": []byte("x"), "prod-20261125T130501Z.tar.zst.bak": nil} {
		if err := p.Put(t.Context(), name, gives([]byte("old"))); err != nil {
			t.Fatal(err)
		}
		if err := p.Put(t.Context(), name, gives(data)); err != nil {
			t.Fatal(err)
		}
		if got, err := read(t, p, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	all, err := p.List(t.Context(), "prod")
	if got, want := fmt.Sprint(all), fmt.Sprintf("[{%s 2026-11-25 13:05:01 +0000 UTC %d} {%s 2026-11-26 13:05:01 +0000 UTC 0}]", backup, len(big), newer); err != nil || got != want {
		t.Errorf("got %s, want %s; %v", got, want, err)
	}
	fails(t, p)
	for range 2 { // the second time there is none
		if err := p.Remove(t.Context(), backup); err != nil {
			t.Error(err)
		}
	}
	if _, err := p.Open(t.Context(), backup); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(fault.Advice(err), "list the backups") {
		t.Errorf("%v: %s", err, fault.Advice(err))
	}
	if all, err := p.List(t.Context(), "prod"); err != nil || len(all) != 1 {
		t.Errorf("at last: %v, %v", all, err)
	}
}

// fails has writes fail in all ways: an object that is there stays, none is made.
func fails(t *testing.T, p place.Place) {
	t.Helper()
	own := errors.New("the disk of the source is broken")
	for failure, n := range map[error]int{own: len(big), io.EOF: 9, io.ErrUnexpectedEOF: 9, fs.ErrPermission: 0} {
		for _, name := range []string{backup, "prod-20270101T000000Z.tar.zst"} {
			err := p.Put(t.Context(), name, func(w io.Writer) error { return errors.Join(gives(big[:n])(w), failure) })
			if !errors.Is(err, failure) || fault.Advice(err) != "" {
				t.Errorf("%v, %s", err, fault.Advice(err))
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := p.Put(ctx, backup, func(w io.Writer) error {
		cancel()
		for {
			if _, err := w.Write(big); err != nil {
				return nil // it hides it
			}
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	_, listing := p.List(ctx, "prod")
	_, opening := p.Open(ctx, backup)
	if opening == nil { // a file needs no request
		r, _ := p.Open(ctx, backup)
		_, opening = r.Read(make([]byte, 1))
		r.Close()
	}
	for _, err := range []error{listing, opening, p.Remove(ctx, backup)} {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", "../x", "a/b", `a\b`, ".hidden"} {
		_, opening := p.Open(t.Context(), name)
		for _, err := range []error{opening, p.Put(t.Context(), name, gives(nil)), p.Remove(t.Context(), name)} {
			said(t, err, "no name of a backup", "the list of backups")
		}
	}
	if got, err := read(t, p, backup); err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes after failures, %v", len(got), err)
	}
	if all, err := p.List(t.Context(), "prod"); err != nil || len(all) != 2 {
		t.Errorf("after failures: %v, %v", all, err)
	}
}
