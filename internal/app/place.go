package app

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// apiPlace is plan.API: it reaches the API server of each master through the connection to that master.
type apiPlace struct{ *site }

var errNoMachine = errors.New("the API is no machine that runs commands")

func (apiPlace) Exec(context.Context, connector.Cmd) error { return errNoMachine }

func (apiPlace) Listen(context.Context) (net.Listener, error) { return nil, errNoMachine }

func (p apiPlace) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	for _, m := range append(p.cluster.Masters(), p.cluster.FormerMasters()...) {
		if r := p.hosts[m]; r != nil && p.cluster.IP(m) == host {
			return r.Dial(ctx, network, address)
		}
	}
	return nil, fault.Transient(fmt.Errorf("no master is connected that has the API server at %s", address))
}

func (apiPlace) Close() error { return nil }
