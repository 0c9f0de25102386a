package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/secret"
)

// TestNeverShows puts a secret through everything that prints, marshals or logs.
func TestNeverShows(t *testing.T) {
	const text = "hunter2"
	s := secret.New(text)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("login", "password", s, "all", struct{ P secret.Secret }{s})
	out, err := json.Marshal(map[string]any{"p": s, "q": &s, "in": struct{ P secret.Secret }{s}})
	if err != nil {
		t.Fatal(err)
	}
	all := log.String() + string(out) + s.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		all += fmt.Sprintf(verb+verb+verb, s, &s, struct{ P secret.Secret }{s})
	}
	if strings.Contains(all, text) || strings.Contains(all, fmt.Sprintf("%x", text)) {
		t.Errorf("the secret shows in %s", all)
	}
	if s.Reveal() != text || s.IsZero() || !(secret.Secret{}).IsZero() {
		t.Error("the secret is lost")
	}
}

func TestReadsPlainText(t *testing.T) {
	var s secret.Secret
	if err := json.Unmarshal([]byte(`"hunter2"`), &s); err != nil || s.Reveal() != "hunter2" {
		t.Errorf("got %q, %v", s.Reveal(), err)
	}
	if err := json.Unmarshal([]byte(`{"a":1}`), &s); err == nil {
		t.Error("an object passes for a secret")
	}
}
