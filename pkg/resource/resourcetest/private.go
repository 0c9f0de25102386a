package resourcetest

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/kubexm/kubexm/pkg/resource/registry"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// Private is a registry with TLS that one user may use, and what it was asked to take.
type Private struct {
	registry.Private
	mu   sync.Mutex
	sent map[string]int // requests by method
}

// NewPrivate serves an inner registry to the user nodes, until the test ends.
func NewPrivate(t testing.TB, inner http.Handler) *Private {
	t.Helper()
	p := &Private{sent: map[string]int{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "nodes" || password != "hunter2" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		p.mu.Lock()
		p.sent[r.Method]++
		p.mu.Unlock()
		inner.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not trust it say so themselves
	server.StartTLS()
	t.Cleanup(server.Close)
	p.Private = registry.Private{
		Name: "example.com:5000", Address: server.Listener.Addr().String(), User: "nodes", Password: secret.New("hunter2"),
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	return p
}

// Writes counts the requests that bring something, and forgets them.
func (p *Private) Writes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.sent[http.MethodPut] + p.sent[http.MethodPost] + p.sent[http.MethodPatch]
	clear(p.sent)
	return n
}
