package resource

import (
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// TestHarbor fills a registry whose projects must be made first.
func TestHarbor(t *testing.T) {
	s := withImages(t)
	r := servePrivate(t, resourcetest.Harbor(registry.New(registry.Logger(log.New(io.Discard, "", 0)))))
	if err := s.Push(t.Context(), r.Registry, nil, pause); err == nil || !strings.Contains(err.Error(), "does not let user nodes in") {
		t.Errorf("without projects: %v", err)
	}
	r.Harbor = true
	if err := r.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if lacks, err := s.Lacks(t.Context(), r.Registry, pause, nginx); err != nil || !slices.Equal(lacks, []string{pause, nginx}) {
		t.Errorf("lacks %v, %v", lacks, err)
	}
	for range 2 {
		if err := s.Push(t.Context(), r.Registry, nil, pause, nginx); err != nil {
			t.Fatal(err)
		}
	}
	if lacks, err := s.Lacks(t.Context(), r.Registry, pause, nginx); err != nil || lacks != nil {
		t.Errorf("lacks %v, %v", lacks, err)
	}
	if list, err := r.List(t.Context()); err != nil || len(list) != 2 || list[1].Repository != "registry.k8s.io/pause" {
		t.Errorf("%+v, %v", list, err)
	}
	other := r.Registry
	other.Password = secret.New("hunter3")
	_, err := s.Lacks(t.Context(), other, pause)
	if err == nil || !strings.Contains(err.Error(), "does not let user nodes in") || !strings.Contains(fault.Advice(err), "first started") {
		t.Errorf("another password: %v, %s", err, fault.Advice(err))
	}
}

// TestHarborTroubles has a Harbor that answers otherwise than it should.
func TestHarborTroubles(t *testing.T) {
	for answer, want := range map[string]string{
		`{"status": "unhealthy", "components": [{"name": "core", "status": "healthy"}, {"name": "database", "status": "unhealthy", "error": "no disk"}]}`: "not all of Harbor is well: database no disk",
		"<html>": "reading Harbor's health: ",
		"":       `/api/v2.0/health": response status code 503: unavailable: the reason`,
	} {
		r := servePrivate(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v2/" && answer == "" {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, `{"errors": [{"code": "UNAVAILABLE", "message": "the reason"}]}`)
			}
			_, _ = io.WriteString(w, answer)
		}))
		r.Harbor = true
		if err := r.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", answer, err, want)
		}
	}
}
