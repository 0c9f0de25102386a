// Package kubetest is an API server in memory, for tests: it keeps objects,
// answers discovery, get, list, watch, create, update, patch and delete, and
// merges server-side apply with the code and the schemas of the real one. It has
// neither admission nor controllers: workloads are ready as soon as written.
package kubetest

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
)

// Server is the API server. Set the fields before it is used.
type Server struct {
	Version string                           // git version; empty: "v1.37.0"
	OnWrite func(*unstructured.Unstructured) // plays the controllers: may set the status of what is about to be stored; nil: Settle
	Failing func() []string                  // checks that /readyz reports as failing; nil: none
	Budget  func(pod string) bool            // plays disruption budgets: whether a pod may be evicted; nil: all may
	Metrics string                           // what /metrics says

	Scheduled bool // pods of Deployments wait for a node; else all is as in a cluster that has one

	mu      sync.Mutex
	kinds   map[schema.GroupVersionResource]kind
	objects map[ref]*unstructured.Unstructured
	log     []change      // the change at i made resource version i+1
	changed chan struct{} // closed and replaced at each change
}

type ref struct {
	schema.GroupVersionResource
	namespace, name string
}

type change struct {
	ref
	watch.EventType
	object *unstructured.Unstructured
}

// New returns a server that holds the namespaces every cluster has.
func New() *Server {
	s := &Server{kinds: builtin(), objects: map[ref]*unstructured.Unstructured{}, changed: make(chan struct{})}
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		s.Put(object("v1", "Namespace", name))
	}
	return s
}

func object(apiVersion, kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}}
}

// Put stores an object, new or not, without any check.
func (s *Server) Put(obj *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.kinds, defined(obj))
	at := ref{s.resourceOf(obj.GroupVersionKind()), obj.GetNamespace(), obj.GetName()}
	s.store(at, obj.DeepCopy(), false)
}

// Delete removes an object, if it is there.
func (s *Server) Delete(obj *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := ref{s.resourceOf(obj.GroupVersionKind()), obj.GetNamespace(), obj.GetName()}
	if old := s.objects[at]; old != nil {
		s.record(at, watch.Deleted, old)
	}
}

// Objects returns copies of all objects, sorted by kind, namespace and name.
func (s *Server) Objects() []*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*unstructured.Unstructured
	for _, obj := range s.objects {
		all = append(all, obj.DeepCopy())
	}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(strings.Compare(a.GetKind(), b.GetKind()), strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return all
}

// AddNode registers a node, or changes whether it is Ready.
func (s *Server) AddNode(name string, ready bool) {
	node := object("v1", "Node", name)
	state := map[string]any{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
	if !ready {
		state = map[string]any{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "cni plugin not initialized"}
	}
	node.Object["status"] = map[string]any{"conditions": []any{state}}
	s.Put(node)
}

// Dialer returns a dial function whose every connection ends at this server.
func (s *Server) Dialer(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return s.Release("", config)
}

// Release is Dialer for an API server of another version; empty: the server's.
func (s *Server) Release(of string, config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go serveConn(far, config, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if of != "" && r.URL.Path == "/version" {
				reply(w, version.Info{GitVersion: of}, nil)
				return
			}
			s.ServeHTTP(w, r)
		}))
		return near, nil
	}
}

// ServeConn serves one connection over TLS until it ends.
func (s *Server) ServeConn(conn net.Conn, config *tls.Config) { serveConn(conn, config, s) }

func serveConn(conn net.Conn, config *tls.Config, handler http.Handler) {
	l := &oneConn{conn: make(chan net.Conn, 1), addr: conn.LocalAddr()}
	l.conn <- tls.Server(conn, config)
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0), // a refused certificate is the client's to report
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(l.conn)
			}
		},
	}
	_ = server.Serve(l) // ends with io.EOF
}

type oneConn struct {
	conn chan net.Conn
	addr net.Addr
}

func (l *oneConn) Accept() (net.Conn, error) {
	if conn, ok := <-l.conn; ok {
		return conn, nil
	}
	return nil, io.EOF
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return l.addr }

// ServeHTTP answers as an API server does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/livez", "/healthz":
		fmt.Fprint(w, "ok")
	case "/readyz":
		s.readyz(w)
	case "/metrics":
		fmt.Fprint(w, s.Metrics)
	case "/version":
		v := s.Version
		if v == "" {
			v = "v1.37.0"
		}
		reply(w, version.Info{GitVersion: v}, nil)
	case "/api", "/apis":
		s.mu.Lock()
		defer s.mu.Unlock()
		reply(w, s.groups(r.URL.Path == "/api"), nil)
	default:
		s.resource(w, r)
	}
}

func (s *Server) readyz(w http.ResponseWriter) {
	var failing []string
	if s.Failing != nil {
		failing = s.Failing()
	}
	if len(failing) > 0 {
		w.WriteHeader(http.StatusInternalServerError)
	}
	fmt.Fprint(w, "[+]ping ok\n")
	for _, check := range failing {
		fmt.Fprintf(w, "[-]%s failed: reason withheld\n", check)
	}
}

// request is a call about a resource.
type request struct {
	*http.Request
	ref
	kind
	subresource string
	dryRun      bool
}

func (s *Server) resource(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case parts[0] == "api" && len(parts) > 1:
		gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case parts[0] == "apis" && len(parts) > 2:
		gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	if len(parts) == 0 {
		defer s.mu.Unlock()
		reply(w, s.resources(gv), nil)
		return
	}
	req := request{Request: r, dryRun: r.URL.Query().Get("dryRun") == "All"}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		req.namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "")
	req.GroupVersionResource, req.name, req.subresource = gv.WithResource(parts[0]), parts[1], parts[2]
	var known bool
	if req.kind, known = s.kinds[req.GroupVersionResource]; !known {
		s.mu.Unlock()
		http.NotFound(w, r)
		return
	}
	if r.Method == http.MethodGet && r.URL.Query().Get("watch") != "" {
		s.mu.Unlock()
		s.watch(w, req)
		return
	}
	defer s.mu.Unlock()
	answer, err := s.serve(req)
	reply(w, answer, err)
}

func (s *Server) serve(r request) (any, error) {
	switch r.Method {
	case http.MethodGet:
		if r.name == "" {
			return s.list(r)
		}
		return s.get(r.ref)
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return s.write(r)
	case http.MethodDelete:
		return s.remove(r)
	}
	return nil, apierrors.NewMethodNotSupported(r.GroupResource(), r.Method)
}

func (s *Server) get(at ref) (*unstructured.Unstructured, error) {
	if obj, ok := s.objects[at]; ok {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(at.GroupResource(), at.name)
}

func (s *Server) list(r request) (any, error) {
	wanted, err := r.filter()
	if err != nil {
		return nil, err
	}
	items := []unstructured.Unstructured{}
	for at, obj := range s.objects {
		if wanted(at, obj) {
			items = append(items, *obj)
		}
	}
	slices.SortFunc(items, func(a, b unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	list := &unstructured.UnstructuredList{}
	start, _ := strconv.Atoi(r.URL.Query().Get("continue")) // none: from the beginning
	items = items[min(start, len(items)):]
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && limit < len(items) {
		items = items[:limit]
		list.SetContinue(strconv.Itoa(start + limit))
	}
	list.Items = items
	list.SetGroupVersionKind(r.GroupVersion().WithKind(r.Kind + "List"))
	list.SetResourceVersion(strconv.Itoa(len(s.log)))
	return list, nil
}

// filter returns what tells the objects that a list or watch asks for.
func (r request) filter() (func(ref, *unstructured.Unstructured) bool, error) {
	query := r.URL.Query()
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return func(at ref, obj *unstructured.Unstructured) bool {
		has := fields.Set{}
		for _, want := range byField.Requirements() {
			has[want.Field], _, _ = unstructured.NestedString(obj.Object, strings.Split(want.Field, ".")...)
		}
		return at.GroupVersionResource == r.GroupVersionResource && (r.namespace == "" || at.namespace == r.namespace) &&
			byLabel.Matches(labels.Set(obj.GetLabels())) && byField.Matches(has)
	}, nil
}

func (s *Server) watch(w http.ResponseWriter, r request) {
	wanted, err := r.filter()
	if err != nil {
		reply(w, nil, err)
		return
	}
	next, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion")) // none: from the beginning, which ends in the present state
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(max(seconds, 1))*time.Second)
	defer cancel()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	for ctx.Err() == nil {
		s.mu.Lock()
		news, changed := s.log[next:], s.changed
		next = len(s.log)
		s.mu.Unlock()
		for _, c := range news {
			if wanted(c.ref, c.object) {
				_ = out.Encode(map[string]any{"type": c.EventType, "object": c.object}) // a client that left ends ctx
			}
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (s *Server) remove(r request) (any, error) {
	if r.name != "" {
		obj, err := s.get(r.ref)
		if err != nil {
			return nil, err
		}
		if err := r.only(obj); err != nil {
			return nil, err
		}
	}
	wanted, err := r.filter()
	if err != nil {
		return nil, err
	}
	for at, obj := range s.objects {
		mine := wanted(at, obj) && (r.name == "" || at == r.ref)
		inside := r.Resource == "namespaces" && at.namespace == r.name && r.name != ""
		if (mine || inside) && !r.dryRun {
			s.record(at, watch.Deleted, obj)
		}
	}
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}, nil
}

// only refuses to remove an object that is not as the request has it.
func (r request) only(obj *unstructured.Unstructured) error {
	options := metav1.DeleteOptions{}
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil || options.Preconditions == nil {
		return nil // there are none
	}
	is := options.Preconditions
	if is.UID != nil && *is.UID != obj.GetUID() || is.ResourceVersion != nil && *is.ResourceVersion != obj.GetResourceVersion() {
		return apierrors.NewConflict(r.GroupResource(), r.name, errChanged)
	}
	return nil
}

// record makes a change and tells those who watch.
func (s *Server) record(at ref, event watch.EventType, obj *unstructured.Unstructured) {
	obj = obj.DeepCopy()
	obj.SetResourceVersion(strconv.Itoa(len(s.log) + 1))
	if event == watch.Deleted {
		delete(s.objects, at)
		for kind := range defined(obj) {
			delete(s.kinds, kind)
			maps.DeleteFunc(s.objects, func(at ref, _ *unstructured.Unstructured) bool { return at.GroupVersionResource == kind })
		}
	} else {
		s.objects[at] = obj
	}
	s.log = append(s.log, change{at, event, obj})
	close(s.changed)
	s.changed = make(chan struct{})
}

func reply(w http.ResponseWriter, answer any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
		if known, ok := err.(apierrors.APIStatus); ok {
			status = known.Status()
		}
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.WriteHeader(int(status.Code))
		answer = status
	}
	_ = json.NewEncoder(w).Encode(answer) // a client that left does not care
}
