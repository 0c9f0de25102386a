package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

// In Harbor the first part of a repository's name is a project, which must be there before it is asked for anything: that is
// the upstream registry, as images keep their names. Facts: api/v2.0/swagger.yaml of Harbor.

// harbor reports whether the registry is Harbor, where the user is its administrator.
func (r Private) harbor() bool { return r.Kind == "harbor" }

// project is the one that an image belongs to.
func project(place registry.Reference) string {
	name, _, _ := strings.Cut(place.Repository, "/")
	return name
}

// hasProject reports whether an image can be in the registry at all. Of a project that is not there, Harbor says that
// the user is not allowed to see it.
func (c *Client) hasProject(ctx context.Context, place registry.Reference) (bool, error) {
	if !c.registry.harbor() {
		return true, nil
	}
	_, status, err := c.api(ctx, http.MethodHead, "projects?project_name="+url.QueryEscape(project(place)), "", http.StatusOK, http.StatusNotFound)
	return status == http.StatusOK, err
}

// makeProject makes the project of an image, if there is none. Who wants images from there must log in, as in any private registry.
func (c *Client) makeProject(ctx context.Context, place registry.Reference) error {
	there, err := c.hasProject(ctx, place)
	if err != nil || there {
		return err
	}
	body := fmt.Sprintf(`{"project_name": %q, "metadata": {"public": "false"}}`, project(place))
	_, _, err = c.api(ctx, http.MethodPost, "projects", body, http.StatusCreated, http.StatusConflict)
	return err
}

// healthy asks Harbor how its parts are.
func (c *Client) healthy(ctx context.Context) error {
	text, _, err := c.api(ctx, http.MethodGet, "health", "", http.StatusOK)
	if err != nil {
		return err
	}
	var health struct {
		Status     string
		Components []struct{ Name, Status, Error string }
	}
	if err := json.Unmarshal(text, &health); err != nil {
		return fmt.Errorf("reading Harbor's health: %w", err)
	}
	if health.Status == "healthy" {
		return nil
	}
	var sick []string
	for _, p := range health.Components {
		if p.Status != "healthy" {
			sick = append(sick, strings.TrimSpace(p.Name+" "+p.Error))
		}
	}
	return fmt.Errorf("unhealthy: %s", strings.Join(sick, ", "))
}

// api asks Harbor for something, and returns its answer, which has one of the statuses that are expected.
func (c *Client) api(ctx context.Context, method, path, body string, expected ...int) (text []byte, status int, err error) {
	at := "https://" + c.registry.Name + "/api/v2.0/" + path
	req, err := http.NewRequestWithContext(ctx, method, at, strings.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return nil, 0, fmt.Errorf("%s %s: %w", method, at, err)
	}
	if slices.Contains(expected, resp.StatusCode) {
		return text, resp.StatusCode, nil
	}
	refused := &errcode.ErrorResponse{Method: method, URL: req.URL, StatusCode: resp.StatusCode}
	_ = json.Unmarshal(text, refused) // where it does not say why, the status does
	return nil, 0, refused
}
