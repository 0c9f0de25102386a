package cli

import (
	"bytes"
	"testing"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// TestHostKeyFields prints what is known of hosts, each once where it is to be pasted into a configuration.
func TestHostKeyFields(t *testing.T) {
	bastion := []connector.HostKey{{Name: "bastion 192.0.2.1", Address: "192.0.2.1:22", Key: "ssh-ed25519 BASTION", Fingerprint: "SHA256:b"}}
	hosts := []app.TrustedHost{
		{Name: "node1", Keys: []connector.HostKey{
			{Name: "node1", Address: "10.0.0.1:22", Key: "ssh-ed25519 ONE", Fingerprint: "SHA256:1"}, {Name: "node1", Address: "10.0.0.1:22", Key: "ssh-rsa OLD", Fingerprint: "SHA256:0"},
		}, Bastion: bastion},
		{Name: "node2", Bastion: bastion, Keys: []connector.HostKey{{Name: "node2", Address: "10.0.0.2:22", Fingerprint: "SHA256:2"}}},
		{Name: "node3"},
	}
	for _, format := range []string{"text", "json", "yaml"} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			p := &program{out: &out}
			if err := p.printHostKeys(format, hosts); err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, out.String())
		})
	}
}
