package host

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// Resolvers lets a host ask name servers before those that it has: in /etc/resolv.conf, or
// in a drop-in of systemd-resolved where that keeps the file. Others who write
// a plain file again (NetworkManager, cloud-init, DHCP clients) lose the block; the next run puts it back.
type Resolvers struct {
	Addresses []string
}

// NameServers are the steps that bring the configuration's name servers, if there are any.
func NameServers(c *cluster.Cluster) []step.Step {
	var r Resolvers
	for _, s := range c.Spec.Extra.Resolves {
		r.Addresses = append(r.Addresses, s.Address)
	}
	if r.Addresses == nil {
		return nil
	}
	return []step.Step{r}
}

func (s Resolvers) String() string { return "name servers" }

// resolved tells whether systemd-resolved keeps the file: a link to one of its files, or a copy of its stub.
const resolved = `case "$(readlink /etc/resolv.conf)" in */systemd/resolve/*) echo yes;;
*) if grep -qs '^nameserver 127\.0\.0\.53' /etc/resolv.conf; then echo yes; fi;; esac`

// Precheck looks who keeps /etc/resolv.conf.
func (s Resolvers) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	out, err := r.Sh(ctx, resolved)
	if err != nil {
		return nil, fmt.Errorf("looking who keeps /etc/resolv.conf: %w", err)
	}
	if out == "yes" {
		return s.dropIn().Precheck(ctx, r)
	}
	return s.block().Precheck(ctx, r)
}

// Owns is what either way makes.
func (s Resolvers) Owns() ([]string, error) {
	file, err1 := step.Owns(s.block())
	service, err2 := step.Owns(s.dropIn())
	return append(file, service...), errors.Join(err1, err2)
}

// block stands first in the file: the C library asks servers in their order, and three at most (resolv.conf(5)).
func (s Resolvers) block() step.Step {
	return step.Block{
		Path: "/etc/resolv.conf", Begin: "# BEGIN kubexm", End: "# END kubexm", Mode: 0o644, First: true,
		Content: step.Content("nameserver " + strings.Join(s.Addresses, "\nnameserver ") + "\n"),
	}
}

// dropIn leads all names to the servers (the domain "~."), but those of which a
// link says that they are its own (resolved.conf(5)).
func (s Resolvers) dropIn() step.Step {
	return step.Service{
		Name: "systemd-resolved", DropIn: step.Content("[Service]\n"),
		Files: []step.File{{
			Path: "/etc/systemd/resolved.conf.d/kubexm.conf", Mode: 0o644,
			Content: step.Content("[Resolve]\nDNS=" + strings.Join(s.Addresses, " ") + "\nDomains=~.\n"),
		}},
	}
}
