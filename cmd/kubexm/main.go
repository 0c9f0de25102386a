// Command kubexm turns bare Linux hosts into production Kubernetes and looks after it.
package main

import (
	"os"

	// Where the system has no roots, as in the container image, which has nothing but kubexm, TLS is checked against Mozilla's.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/kubexm/kubexm/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
