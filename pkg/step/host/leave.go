package host

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// Leave returns the step that ends the connections of a host to API servers by way of a virtual address that goes; none where address is empty. A
// connection to an address that is gone gets no answer, and the kubelet would wait for one for about 45 seconds, until its node counts as lost.
func Leave(c *cluster.Cluster, address string) []step.Step {
	if address == "" {
		return nil
	}
	return []step.Step{Connections{To: address, Ports: append(slices.Clone(c.FormerPorts()), c.APIPort())}}
}

// Connections are those to ports of an address which are not to be.
type Connections struct {
	To    string
	Ports []int
}

func (c Connections) String() string { return "connections to " + c.To }

// Precheck lists them.
func (c Connections) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	var ports []string
	for _, p := range c.Ports {
		ports = append(ports, "dport = :"+strconv.Itoa(p))
	}
	to := strings.TrimSuffix(net.JoinHostPort(c.To, ""), ":") // ss takes the end of an IPv6 address without brackets for a port
	which := fmt.Sprintf("state established dst %s '( %s )'", runner.Quote(to), strings.Join(ports, " or "))
	out, err := r.Sh(ctx, "ss -tn "+which+" | { read -r _; cat; }")
	if err != nil || out == "" {
		return nil, err
	}
	return &step.Change{
		Diff: "+ no " + c.String(),
		Run: func(ctx context.Context) error {
			_, err := r.Sh(ctx, "ss -tnK "+which+" >/dev/null 2>&1 || :")
			return err
		},
		Verify: step.Verified, // a kernel without CONFIG_INET_DIAG_DESTROY cannot
	}, nil
}
