package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestDoors(t *testing.T) {
	c, err := New(Config{Access: map[string]Access{
		"https://Mirror.example.com": {}, "https://mirror.example.com/team/": {}, "registry.example.com:5000/team": {}, "docker.io": {}, "http://plain.example.com": {},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for place, want := range map[string]string{
		"https://mirror.example.com/x":             "https://Mirror.example.com",
		"https://user@mirror.example.com/x?y":      "https://Mirror.example.com",
		"https://mirror.example.com/team/x":        "https://mirror.example.com/team/",
		"https://mirror.example.com/teams/x":       "https://Mirror.example.com",
		"https://mirror.example.com:8443/x":        "",
		"https://mirror.example.com.evil.org/x":    "",
		"http://mirror.example.com/x":              "",
		"mirror.example.com/team/pause":            "https://mirror.example.com/team/",
		"https://registry.example.com:5000/team/x": "registry.example.com:5000/team",
		"registry.example.com:5000/other/x":        "",
		"docker.io/library/nginx":                  "docker.io",
		"http://plain.example.com/x":               "http://plain.example.com",
		"https://plain.example.com/x":              "",
	} {
		if got := c.doors.to(place).key; got != want {
			t.Errorf("%s: %q, want %q", place, got, want)
		}
	}
	_, gone := New(Config{Access: map[string]Access{"https://mirror.example.com": {CAFile: "/nonexistent/ca.pem"}}})
	_, wrong := New(Config{Access: map[string]Access{"https://mirror.example.com": {CAFile: "access_test.go"}}})
	golden.Equal(t, told(gone)+told(wrong))
	if _, err := New(Config{Offline: true, Access: map[string]Access{"x": {CAFile: "/nonexistent/ca.pem"}}}); err != nil {
		t.Errorf("offline: %v", err)
	}
}

// TestBrokenDockerLogins stops what fetches, and nothing else.
func TestBrokenDockerLogins(t *testing.T) {
	docker := t.TempDir()
	if err := os.WriteFile(filepath.Join(docker, "config.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", docker)
	if _, err := New(Config{Offline: true}); err != nil {
		t.Errorf("offline: %v", err)
	}
	if _, err := New(Config{}); err == nil || !strings.Contains(fault.Advice(err), "config.json in $DOCKER_CONFIG, else ~/.docker") {
		t.Errorf("%v, advice %q", err, fault.Advice(err))
	}
}
