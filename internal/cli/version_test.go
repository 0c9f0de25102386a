package cli

import "testing"

func TestVersion(t *testing.T) {
	for want, b := range map[string]build{
		"kubexm v1.2.3 (commit 0123456789ab, 2026-01-02, go1.26.8, linux/amd64)\n": {
			Version: "v1.2.3", Commit: "0123456789abcdef", Time: "2026-01-02T03:04:05Z", Go: "go1.26.8", Platform: "linux/amd64",
		},
		"kubexm (devel) (go1.26.8, darwin/arm64)\n": {Version: "(devel)", Go: "go1.26.8", Platform: "darwin/arm64"},
	} {
		if got := b.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
