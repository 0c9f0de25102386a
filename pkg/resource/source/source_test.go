package source

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// told is what a user is told of an error.
func told(err error) string { return fmt.Sprintf("error: %v\nadvice: %s\n", err, fault.Advice(err)) }

func TestPlaces(t *testing.T) {
	t.Setenv("KXZONE", "cn")
	mirrors := map[string]string{
		"https://":                    "http://10.77.0.1:8099/",
		"https://dl.k8s.io/":          "http://10.77.0.1/k8s", // slashes are evened out
		"registry.k8s.io":             "http://10.77.0.1:5000/registry.k8s.io/",
		"registry.k8s.io/coredns":     "harbor.example.org/dns",
		"https://github.com/etcd-io/": "https://user@mirror.example.org/etcd/",
	}
	c, err := New(Config{Mirrors: mirrors})
	if err != nil {
		t.Fatal(err)
	}
	for original, want := range map[string][]string{
		"https://dl.k8s.io/x":               {"http://10.77.0.1/k8s/x", "https://files.m.daocloud.io/dl.k8s.io/x"},
		"https://github.com/etcd-io/etcd":   {"https://user@mirror.example.org/etcd/etcd", "https://files.m.daocloud.io/github.com/etcd-io/etcd"},
		"https://example.org/x":             {"http://10.77.0.1:8099/example.org/x"},
		"registry.k8s.io/pause:3.10":        {"http://10.77.0.1:5000/registry.k8s.io/pause:3.10", "m.daocloud.io/registry.k8s.io/pause:3.10"},
		"registry.k8s.io/coredns/coredns:1": {"harbor.example.org/dns/coredns:1", "m.daocloud.io/registry.k8s.io/coredns/coredns:1"},
		"registry.k8s.io.example.org/x:1":   nil,
		"quay.io/x/y:1":                     {"m.daocloud.io/quay.io/x/y:1"},
	} {
		var got []string
		for _, p := range c.Places(original) {
			got = append(got, p.URL)
		}
		if diff := cmp.Diff(append(want, original), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", original, diff)
		}
	}
	_, err = New(Config{Zone: "mars"})
	golden.Equal(t, told(err))
}

// TestExplain shows what to do about a place that has not given something.
func TestExplain(t *testing.T) {
	c := Config{Zone: "cn", Mirrors: map[string]string{"https://dl.k8s.io/": "http://10.77.0.1/k8s"}}
	var b strings.Builder
	for _, p := range c.Places("https://dl.k8s.io/x") {
		for _, err := range []error{&StatusError{what: "GET x", status: "404 Not Found", Code: 404}, io.ErrUnexpectedEOF, context.Canceled, &fs.PathError{Op: "open", Path: "x", Err: fs.ErrPermission}} {
			b.WriteString(p.URL + "\n" + told(p.Explain(err)))
		}
	}
	golden.Equal(t, b.String())
}

// TestSumPlaces asks the publisher before a mirror that the user did not choose.
func TestSumPlaces(t *testing.T) {
	c := Config{Zone: "cn", Mirrors: map[string]string{"https://github.com/": "https://mirror.example.org/"}}
	for original, want := range map[string][]string{
		"https://dl.k8s.io/x":  {"https://dl.k8s.io/x", "https://files.m.daocloud.io/dl.k8s.io/x"},
		"https://github.com/x": {"https://mirror.example.org/x", "https://github.com/x", "https://files.m.daocloud.io/github.com/x"},
		"https://example.org/": {"https://example.org/"},
	} {
		var got []string
		for _, p := range c.SumPlaces(original) {
			got = append(got, p.URL)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", original, diff)
		}
	}
}

// TestRedirectWithoutTLS has a mirror that sends who asks it away from TLS.
func TestRedirectWithoutTLS(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer plain.Close()
	mirror := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer mirror.Close()
	for insecure, want := range map[bool]string{false: "without TLS", true: ""} {
		c, err := New(Config{Insecure: insecure, Transport: mirror.Client().Transport.(*http.Transport)})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := Get(t.Context(), c.HTTP(mirror.URL), mirror.URL, nil)
		if (err == nil) != insecure || err != nil && (!strings.Contains(err.Error(), want) || fault.Advice(err) == "") {
			t.Errorf("insecure %v: %v", insecure, err)
		}
		if err == nil {
			resp.Body.Close()
		}
	}
}
