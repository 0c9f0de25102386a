package runner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParseReach reads what bash says when it connects, or cannot.
func TestParseReach(t *testing.T) {
	const unknown = "?"
	for line, why := range map[string]string{
		"10.0.0.2 6443 0 ":                            "",
		"10.0.0.2 6443 1 Connection refused":          "",
		"10.0.0.2 6443 124 ":                          "no answer in 2 seconds",
		"10.0.0.2 6443 1 Connection timed out":        "connection timed out",
		"10.0.0.2 6443 1 No route to host":            "no route to host", // of firewalld
		"10.0.0.2 6443 1 Network is unreachable":      "network is unreachable",
		"10.0.0.2 6443 1 Operation not permitted":     "operation not permitted", // of rules for what leaves
		"10.0.0.2 6443 137 ":                          "no answer in 2 seconds",
		"10.0.0.2 6443 127 No such file or directory": unknown, // there is no bash
		"10.0.0.2": unknown,
		"":         unknown,
	} {
		want := map[string]string{}
		if why != unknown {
			want["10.0.0.2:6443"] = why
		}
		if diff := cmp.Diff(want, parseReach(line+"\n")); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
	if _, err := New("node1", nil).Reach(t.Context(), []string{"10.0.0.2"}); err == nil {
		t.Error("an address without a port")
	}
}
