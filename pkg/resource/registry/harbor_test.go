package registry_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
)

// TestHarborTroubles has a Harbor that answers otherwise than it should.
func TestHarborTroubles(t *testing.T) {
	for answer, want := range map[string]string{
		`{"status": "unhealthy", "components": [{"name": "core", "status": "healthy"}, {"name": "database", "status": "unhealthy", "error": "no disk"}]}`: "unhealthy: database no disk",
		"<html>": "reading Harbor's health: ",
		"":       `/api/v2.0/health": response status code 503: unavailable: the reason`,
	} {
		r := resourcetest.NewPrivate(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v2/" && answer == "" {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, `{"errors": [{"code": "UNAVAILABLE", "message": "the reason"}]}`)
			}
			_, _ = io.WriteString(w, answer)
		}))
		r.Kind = "harbor"
		if err := r.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", answer, err, want)
		}
	}
}
