package runnertest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
)

// places reads a hosts.toml as containerd does: the tables of [host] in their order, and last the server.
func places(text string) []map[string]string {
	server := map[string]string{}
	at, all := server, []map[string]string(nil)
	for _, l := range strings.Split(text, "\n") {
		l = strings.TrimSpace(l)
		key, value, _ := strings.Cut(l, " = ")
		switch {
		case l == "" || l[0] == '#':
		case l == "[header]" || strings.HasPrefix(l, "[host.") && strings.HasSuffix(l, ".header]"): // of the table before
		case strings.HasPrefix(l, "[host."):
			at = map[string]string{"server": strings.Trim(strings.TrimPrefix(l, "[host."), `"]`)}
			all = append(all, at)
		default:
			at[key] = strings.Trim(value, `"`)
		}
	}
	return append(all, server)
}

// pull gets an image whole from the first place that has it.
func (c *Call) pull(image string) int {
	name, rest, _ := strings.Cut(image, "/")
	at := strings.LastIndex(rest, ":")
	text, _ := c.Get(c.runtime().Hosts + name + "/hosts.toml")
	errs, all := []error{errors.New("rpc error: failed to pull and unpack image " + image)}, places(text)
	if c.runtime().Pulls {
		all = c.registries(name)
	}
	for _, p := range all {
		u, err := url.Parse(cmp.Or(p["server"], "https://"+name))
		if err != nil {
			return c.Failf(1, "%v", err)
		}
		if p["override_path"] != "true" {
			u.Path = path.Join(u.Path, "v2")
		}
		u.Path = path.Join("/", u.Path, rest[:at])
		digest, err := c.pullFrom(u, p, rest[at+1:])
		if err == nil {
			c.AddImage(image, digest)
			c.changed("pull %s from %s", image, u.Host)
			return 0
		}
		errs = append(errs, fmt.Errorf("%s: %w", u, err))
	}
	return c.Failf(1, "%v", errors.Join(errs...))
}

// pullFrom gets the manifest, or the index, of a tag, and what it consists of.
func (c *Call) pullFrom(repo *url.URL, place map[string]string, tag string) (digest string, err error) {
	roots := x509.NewCertPool()
	ca, _ := c.Get(place["ca"])
	roots.AppendCertsFromPEM([]byte(ca))
	var conns []net.Conn
	var mu sync.Mutex
	defer func() { // at once: TLS would wait for the other side to take leave, too
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range conns {
			conn.Close()
		}
	}()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.dialName(ctx, network, address)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, conn)
		}
		return conn, err
	}
	client := &http.Client{Transport: &http.Transport{
		MaxConnsPerHost: 1, DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: roots, InsecureSkipVerify: place["skip_verify"] == "true"},
	}}
	get := func(kind, what string) ([]byte, error) {
		req, err := http.NewRequestWithContext(c.Context, http.MethodGet, repo.String()+"/"+kind+"/"+what, nil)
		if err != nil {
			return nil, err
		}
		if login := place["Authorization"]; login != "" {
			req.Header.Set("Authorization", login)
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			return nil, errors.New(resp.Status)
		}
		return body, err
	}
	type part struct {
		Digest   string
		Platform struct{ Architecture string }
	}
	var m struct {
		Manifests, Layers []part
		Config            part
	}
	body, err := get("manifests", tag)
	if err != nil {
		return "", err
	}
	digest = fmt.Sprintf("sha256:%x", sha256.Sum256(body))
	if err = json.Unmarshal(body, &m); err == nil && m.Manifests != nil {
		i := slices.IndexFunc(m.Manifests, func(p part) bool { return p.Platform.Architecture == "amd64" })
		if i < 0 {
			return "", errors.New("no match for platform in manifest")
		}
		if body, err = get("manifests", m.Manifests[i].Digest); err == nil {
			err = json.Unmarshal(body, &m)
		}
	}
	for _, p := range append(m.Layers, m.Config) {
		if err == nil {
			_, err = get("blobs", p.Digest)
		}
	}
	return digest, err
}

// dialName connects to a name in /etc/hosts, or to an address.
func (c *Call) dialName(ctx context.Context, network, address string) (net.Conn, error) {
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	hosts, _ := c.Get("/etc/hosts")
	for l := range strings.Lines(hosts) {
		if f := strings.Fields(l); len(f) > 1 && slices.Contains(f[1:], name) {
			name = f[0]
		}
	}
	return c.Host.Dial(ctx, network, net.JoinHostPort(name, port))
}
