// Package kube speaks to the API server of a cluster: it applies objects, shows
// what applying them would change, waits for what they promise, and finds what uses
// APIs that a later version removes. It reaches the server through a dial function,
// normally that of the SSH connection to a master, so that the control machine needs
// no route to the API.
//
// Calls are repeated for a short, bounded time while the server is away or busy;
// an error that remains is marked fault.Transient.
package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/kubexm/kubexm/pkg/pki"
)

// Access says how to reach an API server.
type Access struct {
	Address    string                    // "host:port", as seen from where Dial comes out
	Others     []string                  // addresses of further servers of the same cluster, for when one does not answer
	ServerName string                    // a name in the certificate of each server; empty: the host of Address, where there are no Others
	CA         []byte                    // PEM of the authority of the server's certificate
	Client     func() (*pki.Pair, error) // the client certificate, asked for at each connection
	Dial       func(ctx context.Context, network, addr string) (net.Conn, error)
	Patience   time.Duration // how long a call is repeated while the server is away or busy; 0: 30 seconds
}

// Client is a connection to the API: to one server, and to the next one when that does not answer. It is safe
// for concurrent use. What the server can do is asked once and kept until something is missing in it.
type Client struct {
	Typed   kubernetes.Interface
	Dynamic dynamic.Interface

	config   *rest.Config
	server   *discovery.DiscoveryClient
	servers  *servers
	patience time.Duration

	asking *semaphore.Weighted // of one, as it is held over requests
	kinds  meta.RESTMapper     // what the server serves; nil: to be asked

	recording *semaphore.Weighted // so is it
	applied   map[string][]string // the inventory; nil: to be read
}

// New makes a client. It does not connect yet.
func New(a Access) (*Client, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.CA) {
		return nil, errors.New("making an API client: the authority's certificate is not PEM")
	}
	// HTTP/1.1: each request that runs has a connection of its own, so one that
	// died silently delays one request until its own time-out, not all of them. A
	// connection is only a channel of the SSH connection, and kept for the next call.
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{
			RootCAs:    roots,
			ServerName: a.ServerName,
			MinVersion: tls.VersionTLS12,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				pair, err := a.Client()
				if err != nil {
					return nil, err
				}
				return pair.TLS(), nil
			},
		},
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: parallel,
		IdleConnTimeout:     90 * time.Second,
	}
	all := &servers{addresses: append([]string{a.Address}, a.Others...), http: transport, dial: a.Dial}
	transport.DialContext = all.connect
	c := &Client{
		config: &rest.Config{
			Host:           "https://" + all.name(a.ServerName),
			Transport:      all,
			ContentConfig:  rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
			QPS:            -1, // the server has its own fairness
			UserAgent:      FieldManager,
			WarningHandler: rest.NoWarnings{},
		},
		servers:   all,
		patience:  a.Patience,
		asking:    semaphore.NewWeighted(1),
		recording: semaphore.NewWeighted(1),
	}
	if c.patience == 0 {
		c.patience = 30 * time.Second
	}
	return c, c.connect()
}

func (c *Client) connect() (err error) {
	if c.Typed, err = kubernetes.NewForConfig(c.config); err != nil {
		return fmt.Errorf("making an API client: %w", err)
	}
	if c.Dynamic, err = dynamic.NewForConfig(c.config); err != nil {
		return fmt.Errorf("making an API client: %w", err)
	}
	if c.server, err = discovery.NewDiscoveryClientForConfig(c.config); err != nil {
		return fmt.Errorf("making an API client: %w", err)
	}
	return nil
}

// Config returns a copy of the configuration for other clients (Helm's).
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Close closes the connections that wait for the next call.
func (c *Client) Close() { c.servers.http.CloseIdleConnections() }

// on returns where objects of obj's kind and namespace live. It gives a namespaced
// object without a namespace the namespace "default", as kubectl does.
func (c *Client) on(ctx context.Context, obj *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	mapping, err := c.mapping(ctx, obj.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.Dynamic.Resource(mapping.Resource), nil
	}
	return c.Dynamic.Resource(mapping.Resource).Namespace(cmp.Or(obj.GetNamespace(), "default")), nil
}

func (c *Client) mapping(ctx context.Context, kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	if err := c.asking.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer c.asking.Release(1)
	if c.kinds == nil {
		groups, err := restmapper.GetAPIGroupResourcesWithContext(ctx, c.server)
		if err != nil {
			return nil, err
		}
		c.kinds = restmapper.NewDiscoveryRESTMapper(groups)
	}
	mapping, err := c.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		c.kinds = nil // it may be defined by the time of the next look
	}
	return mapping, err
}

// forget makes the client ask again what the server serves.
func (c *Client) forget(ctx context.Context) {
	if c.asking.Acquire(ctx, 1) == nil {
		defer c.asking.Release(1)
		c.kinds = nil
	}
}

// title names an object for people: "Deployment kube-system/coredns".
func title(obj *unstructured.Unstructured) string {
	if ns := obj.GetNamespace(); ns != "" {
		return obj.GetKind() + " " + ns + "/" + obj.GetName()
	}
	return obj.GetKind() + " " + obj.GetName()
}
