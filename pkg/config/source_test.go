package config

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

func TestResolveSource(t *testing.T) {
	var c v1alpha1.Cluster
	c.Spec.Source.Access = map[string]v1alpha1.Access{
		"https://a.example.com": {Username: "ci", PasswordFrom: &v1alpha1.SecretSource{Exec: "pass"}, ProxyFrom: &v1alpha1.SecretSource{Exec: "proxy"}},
		"b.example.com":         {Username: "ci", Password: secret.New("plain"), Proxy: "direct"},
	}
	run := func(_ context.Context, line string) (string, error) { return "from " + line + "\n", nil }
	src, warnings, err := ResolveSource(t.Context(), &c, run)
	a, b := src.Access["https://a.example.com"], src.Access["b.example.com"]
	if err != nil || warnings != nil || a.Password.Reveal() != "from pass" || a.Proxy != "from proxy" || b.Password.Reveal() != "plain" || b.Proxy != "direct" {
		t.Errorf("got %q, %q, %q, %q, %v, %v", a.Password.Reveal(), a.Proxy, b.Password.Reveal(), b.Proxy, warnings, err)
	}
	if left := c.Spec.Source.Access["https://a.example.com"]; !left.Password.IsZero() || left.Proxy != "" {
		t.Error("the configuration holds the secrets now")
	}
	run = func(context.Context, string) (string, error) { return "", errors.New("no such command") }
	_, _, err = ResolveSource(t.Context(), &c, run)
	for _, want := range []string{
		"spec.source.access[https://a.example.com].passwordFrom: running the command that gives the secret: no such command",
		"spec.source.access[https://a.example.com].proxyFrom: running the command",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	c.Spec.Source.Access["c.example.com"] = v1alpha1.Access{Username: "ci", Password: secret.New("plain")}
	if got := plainSecret(&c); !strings.HasSuffix(got, ".example.com].password") {
		t.Errorf("a password in the configuration: %q", got)
	}
}
