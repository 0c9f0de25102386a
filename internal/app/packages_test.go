package app_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/connector"
)

// asked is a machine that resolves no packages, and tells what it was asked for.
type asked struct {
	connector.Connector
	scripts []string
}

var errAsked = errors.New("asked")

func (a *asked) Exec(_ context.Context, c connector.Cmd) error {
	a.scripts = append(a.scripts, c.Line)
	return errAsked
}

// TestPackagesOfAnyCluster wants the packages of all features where no cluster is named, under the names of each system.
func TestPackagesOfAnyCluster(t *testing.T) {
	for system, want := range map[string]string{
		"debian12": "chrony conntrack ebtables ethtool haproxy iproute2 ipset iptables ipvsadm keepalived kmod libnginx-mod-stream nftables nginx socat tzdata",
		"rocky9":   "chrony conntrack-tools ebtables ethtool haproxy iproute ipset iptables ipvsadm keepalived kmod nftables nginx nginx-mod-stream socat tzdata",
	} {
		here := &asked{}
		_, err := (&app.App{Workdir: t.TempDir(), Here: here}).NewDownload(t.Context(), app.Request{}, app.Observer{}, app.Selection{
			Kubernetes: []string{config.DefaultKubernetes()}, Systems: []string{system}, Archs: []string{"arm64"},
		})
		if !errors.Is(err, errAsked) || !slices.ContainsFunc(here.scripts, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%s: %v, asked for: %s", system, err, here.scripts)
		}
	}
}
