package source

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// Access is what it takes to get at a server, besides its address.
type Access struct {
	Username string // empty: no login; of registries docker's
	Password secret.Secret
	CAFile   string // certificates (PEM) to trust besides those of the system
	Proxy    string // its URL; "direct": none; empty: as HTTPS_PROXY, HTTP_PROXY and NO_PROXY say
}

// door is a way out: that of an entry of Config.Access, or the common one. Where a server
// redirects to, and who gives out its tokens, is reached by the same door, unless it has
// its own. A login only goes to what its prefix covers.
type door struct {
	Access
	key       string   // in Config.Access; empty: the common one
	prefix    *url.URL // key, with https where it does not say; the common one's covers nothing
	all       doors
	transport *http.Transport
	client    *http.Client // that goes through the door
	images    *auth.Client // client, with logins to registries
}

// follow refuses a redirect that leaves TLS: whoever is on the way could replace what comes.
func (c Config) follow(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme == "http" && !c.Insecure {
		return fault.Advise(fmt.Errorf("it redirects to %s, without TLS", req.URL.Redacted()), "use another mirror, or, if all networks on the way are yours, set spec.source.insecure: true")
	}
	return nil
}

// doors begin with the longest prefix and end with the common one.
type doors []*door

// newDoors returns the doors of a Config. Offline there is only the common one, without logins.
func newDoors(c Config) (doors, error) {
	logins := credentials.NewMemoryStore()
	var err error
	if c.Offline {
		c.Access = nil
	} else if logins, err = dockerLogins(); err != nil {
		return nil, fault.Advise(fmt.Errorf("reading docker's logins: %w", err),
			"fix config.json in $DOCKER_CONFIG, else ~/.docker, or move it away and log in again with docker login")
	}
	all := make(doors, 0, len(c.Access)+1)
	for key, a := range c.Access {
		d := &door{Access: a, key: key}
		if d.prefix, err = originOf(key); err == nil {
			d.transport, err = a.transport(c.Transport)
		}
		if err != nil {
			return nil, fault.Advise(err, "correct "+field(key))
		}
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b *door) int {
		return cmp.Or(cmp.Compare(len(b.prefix.String()), len(a.prefix.String())), strings.Compare(a.key, b.key))
	})
	all = append(all, &door{prefix: &url.URL{}, transport: c.Transport})
	for _, d := range all {
		d.all, d.client = all, &http.Client{Transport: d, CheckRedirect: c.follow}
		d.images = &auth.Client{Client: d.client, Cache: auth.NewCache(), Credential: credentials.Credential(logins)}
		if d.Username != "" {
			d.images.Credential = auth.StaticCredential(d.prefix.Host, auth.Credential{Username: d.Username, Password: d.Password.Reveal()})
		}
	}
	return all, nil
}

// originOf reads a URL prefix, or a registry, as a URL without login and query.
func originOf(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is neither a URL nor a registry", Redacted(text))
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host), Path: strings.TrimRight(u.Path, "/")}, nil
}

// field is where the configuration says how to get at something.
func field(key string) string { return fmt.Sprintf("spec.source.access[%q]", key) }

// transport returns one like base that does what a says.
func (a Access) transport(base *http.Transport) (*http.Transport, error) {
	t := base.Clone()
	switch a.Proxy {
	case "":
	case "direct":
		t.Proxy = nil
	default:
		proxy, err := url.Parse(a.Proxy)
		if err != nil {
			return nil, errors.New("the proxy is not a URL")
		}
		t.Proxy = http.ProxyURL(proxy)
	}
	if a.CAFile == "" {
		return t, nil
	}
	text, err := os.ReadFile(a.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA certificate: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the CA certificates of the system: %w", err)
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", a.CAFile)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

func newTransport() *http.Transport {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, OnProxyConnectResponse: proxyAnswer,
		ForceAttemptHTTP2: true, MaxIdleConns: 100, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
	}
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.ReadBufferSize = 128 << 10
	return t
}

// proxyAnswer makes an error of a proxy's refusal that names the proxy.
func proxyAnswer(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &StatusError{Code: resp.StatusCode, what: "proxy " + proxy.Redacted(), proxy: true, status: resp.Status}
}

// dockerLogins returns the logins to registries that "docker login" leaves; none for a service without a home.
func dockerLogins() (credentials.Store, error) {
	if _, err := os.UserHomeDir(); err != nil && os.Getenv("DOCKER_CONFIG") == "" {
		return credentials.NewMemoryStore(), nil
	}
	return credentials.NewStoreFromDocker(credentials.StoreOptions{})
}

// to returns the door for a URL, or for a repository without its tag.
func (all doors) to(place string) *door {
	if u, err := originOf(place); err == nil {
		for _, d := range all {
			if d.covers(u) {
				return d
			}
		}
	}
	return all.common()
}

func (all doors) common() *door { return all[len(all)-1] }

func (d *door) covers(u *url.URL) bool {
	rest, ok := strings.CutPrefix(u.Path, d.prefix.Path)
	return d.serves(u) && ok && (rest == "" || rest[0] == '/')
}

// serves reports whether a URL is of the door's own server.
func (d *door) serves(u *url.URL) bool {
	return d.prefix.Scheme == u.Scheme && strings.EqualFold(d.prefix.Host, u.Host)
}

// RoundTrip implements http.RoundTripper.
func (d *door) RoundTrip(req *http.Request) (*http.Response, error) {
	to := d
	if own := d.all.to(req.URL.String()); own != d.all.common() && !d.serves(req.URL) {
		to = own
	}
	// Registries say themselves which kind of login they want, and d.images gives it.
	if to.Username != "" && to.covers(req.URL) && req.Header.Get("Authorization") == "" && !strings.HasPrefix(req.URL.Path, "/v2/") {
		req = req.Clone(req.Context())
		req.SetBasicAuth(to.Username, to.Password.Reveal())
	}
	resp, err := to.transport.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusProxyAuthRequired { // without TLS it is just an answer
		if proxy := to.proxy(req); proxy != nil {
			resp.Body.Close()
			err = proxyAnswer(req.Context(), proxy, req, resp)
		}
	}
	if err != nil {
		return nil, to.explain(req, err)
	}
	return resp, nil
}

// proxy returns the proxy for a request; nil: none.
func (d *door) proxy(req *http.Request) *url.URL {
	if d.transport.Proxy == nil {
		return nil
	}
	u, _ := d.transport.Proxy(req) // one that is no URL has made the request fail
	return u
}

// explain adds to the error of a request the next move, and the proxy.
func (d *door) explain(req *http.Request, err error) error {
	entry := field(d.key)
	if !d.serves(req.URL) {
		entry = field(req.URL.Scheme + "://" + req.URL.Host)
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return fault.Advise(err, "if it is to be trusted, put the CA certificate of "+req.URL.Host+" into a file and name that in "+entry+".caFile")
	}
	op, _ := errors.AsType[*net.OpError](err)
	answer, refused := errors.AsType[*StatusError](err)
	if !refused && (op == nil || op.Op != "proxyconnect") {
		return err
	}
	if !refused {
		if proxy := d.proxy(req); proxy != nil {
			err = fmt.Errorf("proxy %s: %w", proxy.Redacted(), op.Err)
		}
	}
	where := "HTTPS_PROXY, HTTP_PROXY and NO_PROXY"
	if d.Proxy != "" {
		where = field(d.key) + " (proxy, or proxyFrom)"
	}
	if refused && answer.Code == http.StatusProxyAuthRequired {
		return fault.Advise(err, "give the proxy's URL with the login that it needs (http://user:password@host:port): "+where)
	}
	return fault.Advise(err, "check that the proxy is up and is the right one: "+where)
}
