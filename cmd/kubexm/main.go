// Command kubexm turns bare Linux hosts into production Kubernetes and looks after it.
package main

import (
	"os"

	"github.com/kubexm/kubexm/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
