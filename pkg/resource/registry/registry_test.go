package registry_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"

	memory "github.com/google/go-containerregistry/pkg/registry"
	"oras.land/oras-go/v2"

	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// TestContent brings an image to a registry, and to Harbor, and asks what is there.
func TestContent(t *testing.T) {
	const image, missing = "quay.io:443/team/app:1", "quay.io:443/team/app:2"
	for name, inner := range map[string]http.Handler{
		"registry": memory.New(memory.Logger(log.New(io.Discard, "", 0))),
		"harbor":   resourcetest.Harbor(memory.New(memory.Logger(log.New(io.Discard, "", 0)))),
	} {
		t.Run(name, func(t *testing.T) {
			r := resourcetest.NewPrivate(t, inner)
			r.Kind = name
			if found, err := r.Digests(t.Context(), image, missing); err != nil || len(found) != 0 {
				t.Errorf("of nothing: %v, %v", found, err)
			}
			c := r.Connect()
			defer c.Close()
			repo, err := c.Repository(t.Context(), image)
			if err != nil {
				t.Fatal(err)
			}
			d, err := oras.PackManifest(t.Context(), repo, oras.PackManifestVersion1_1, "application/vnd.example.test", oras.PackManifestOptions{})
			if err == nil {
				err = repo.Tag(t.Context(), d, repo.Reference.Reference)
			}
			if err != nil {
				t.Fatal(err)
			}
			if found, err := r.Digests(t.Context(), image, missing); err != nil || len(found) != 1 || found[image] != d.Digest {
				t.Errorf("%v, %v; want %s", found, err, d.Digest)
			}
			list, err := r.List(t.Context())
			if got, want := fmt.Sprint(list), fmt.Sprintf("[{quay.io_443/team/app 1 %s [] %d}]", d.Digest, d.Size+2); err != nil || got != want { // and "{}"
				t.Errorf("%s, %v; want %s", got, err, want)
			}
		})
	}
}

// TestRefused shows what is told of a user, and of a reference, that the registry does not know.
func TestRefused(t *testing.T) {
	r := resourcetest.NewPrivate(t, memory.New(memory.Logger(log.New(io.Discard, "", 0))))
	if _, err := r.Digests(t.Context(), "quay.io/app"); err == nil || !strings.Contains(err.Error(), "missing tag or digest") || fault.Advice(err) == "" {
		t.Errorf("no tag: %v, advice %q", err, fault.Advice(err))
	}
	r.Password = secret.New("hunter3")
	_, listed := r.List(t.Context())
	for what, err := range map[string]error{"ping": r.Ping(t.Context()), "list": listed} {
		if err == nil || !strings.Contains(err.Error(), "refuses user nodes") || strings.Contains(err.Error(), "hunter") || fault.Advice(err) == "" {
			t.Errorf("%s: %v, advice %q", what, err, fault.Advice(err))
		}
	}
}
