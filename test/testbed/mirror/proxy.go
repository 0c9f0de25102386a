package mirror

import (
	"net/http"
	"net/http/httputil"
)

// WithProxy makes a server a proxy, too: it fetches whole URLs for those who have no way to where they lead.
func WithProxy(next http.Handler) http.Handler {
	proxy := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Host != "" {
			proxy.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
