package resourcetest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Harbor makes of a registry one that has projects, as Harbor does: to what is in none it lets nobody in.
func Harbor(registry http.Handler) http.Handler {
	var mu sync.Mutex
	projects := map[string]bool{"library": true}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")
		switch {
		case r.URL.Path == "/api/v2.0/health":
			_, _ = io.WriteString(w, `{"status": "healthy", "components": [{"name": "core", "status": "healthy"}]}`)
		case r.URL.Path == "/api/v2.0/projects" && r.Method == http.MethodHead:
			if !projects[r.URL.Query().Get("project_name")] {
				w.WriteHeader(http.StatusNotFound)
			}
		case r.URL.Path == "/api/v2.0/projects" && r.Method == http.MethodPost:
			var p struct {
				Name     string `json:"project_name"`
				Metadata map[string]string
			}
			if err := json.NewDecoder(r.Body).Decode(&p); err != nil || p.Name == "" || p.Metadata["public"] != "false" {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"errors": [{"code": "BAD_REQUEST", "message": "this is no project"}]}`)
				return
			}
			if projects[p.Name] {
				w.WriteHeader(http.StatusConflict)
				return
			}
			projects[p.Name] = true
			w.WriteHeader(http.StatusCreated)
		case r.URL.Path != "/v2/" && name != "_catalog" && !projects[name]:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"errors": [{"code": "UNAUTHORIZED", "message": "project `+name+` not found"}]}`)
		default:
			registry.ServeHTTP(w, r)
		}
	})
}
