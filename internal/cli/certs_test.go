package cli

import (
	"testing"
	"time"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestCerts(t *testing.T) {
	on := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	is := &app.Certificates{Cluster: "prod", Problems: []string{"host node2: not reachable"}, Certificates: []app.Certificate{
		{Days: -2, State: app.CertExpired, Certificate: cluster.Certificate{Host: "node1", Subject: "kube-apiserver", Signer: "kubernetes", Expires: on, Servers: []string{"kube-apiserver 192.0.2.1:6443"}}},
		{Days: 20, State: app.CertDue, Certificate: cluster.Certificate{Host: "node1", Path: "/etc/ssl/etcd/ssl/member-node1.pem", Subject: "etcd-member-node1", Signer: "etcd-ca", Expires: on, Servers: []string{"etcd 192.0.2.1:2379", "etcd 192.0.2.1:2380"}}},
		{Days: 60, State: app.CertSoon, Certificate: cluster.Certificate{Host: "node1", Path: "/var/lib/kubelet/pki/kubelet-client-current.pem", Subject: "system:node:node1 (system:nodes)", Signer: "kubernetes", Expires: on}},
		{Days: 3600, State: app.CertOK, Certificate: cluster.Certificate{Host: "control", Path: "/srv/.kubexm/prod/certs/kubernetes/ca.crt", Also: []string{"a", "b"}, Subject: "kubernetes", Signer: "kubernetes", Authority: true, Expires: on}},
	}}
	golden.File(t, "testdata/TestCerts", certsText(is, style.New(false), 200))
	if is.Due() != 2 {
		t.Errorf("%d are due", is.Due())
	}
}
