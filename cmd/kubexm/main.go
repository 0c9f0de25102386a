// Command kubexm turns bare Linux hosts into production Kubernetes and looks after it.
package main

import (
	"os"
	"runtime/debug"

	// Where the system has no roots, as in the container image, which has nothing but kubexm, TLS is checked against Mozilla's.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/kubexm/kubexm/internal/cli"
)

// memory is how many bytes Go takes before it looks for garbage more often. With 1,000 hosts about 500 MB are in use, and
// it would let garbage grow to as much again, and more where steps make it faster than it is found.
const memory = 850 << 20

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory)
	}
	os.Exit(cli.Main(os.Args[1:]))
}
