package preflight

import (
	"context"
	"fmt"
	"time"

	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plan"
)

// lastsFor is how long a certificate that nothing renews is to be valid after an upgrade.
const lastsFor = 90 * 24 * time.Hour

// certificates finds authorities of the cluster, and files for an external etcd, that expire soon, or have expired. What the authorities have signed needs no
// look: any run makes it again that has less than 30 days left.
func certificates(_ context.Context, l *Look) (found []Finding, _ error) {
	c := l.Cluster
	authorities := []pki.CA{pki.Kubernetes, pki.FrontProxy}
	if !c.ExternalEtcd() {
		authorities = append(authorities, pki.Etcd)
	}
	if c.RegistryHost() != "" {
		authorities = append(authorities, pki.Registry)
	}
	const rotate = "exchange it before: kubexm certs rotate-ca"
	for _, ca := range authorities {
		pair, err := c.Certs.CA(ca)
		if err != nil {
			found = append(found, Finding{Host: plan.Control, Severity: SeverityError, Found: err.Error(), Needed: "an authority that is valid", Fix: rotate})
			continue
		}
		found = append(found, expires("the certificate authority "+string(ca), rotate, pair.X509.NotAfter)...)
	}
	if c.ExternalEtcd() {
		files := c.Spec.Etcd.External
		client, _, err1 := c.EtcdClient().TLS()
		trusted, err2 := pki.Expires(c.EtcdClient().CA)
		if err1 == nil && err2 == nil { // else the configuration is refused
			found = append(found, expires(files.CAFile, "put one that is valid for longer into the file of spec.etcd.external.caFile", trusted)...)
			found = append(found, expires(files.CertFile, "put one that is valid for longer into the file of spec.etcd.external.certFile", client.Certificates[0].Leaf.NotAfter)...)
		}
	}
	return found, nil
}

// expires finds that a certificate is not valid for long.
func expires(name, fix string, on time.Time) []Finding {
	f := Finding{Host: plan.Control, Found: fmt.Sprintf("%s expires on %s", name, on.Format(time.DateOnly)), Needed: "certificates that are valid for 90 days or more", Fix: fix}
	switch left := time.Until(on); {
	case left <= 0:
		f.Severity, f.Found = SeverityError, fmt.Sprintf("%s expired on %s", name, on.Format(time.DateOnly))
	case left >= lastsFor:
		return nil
	}
	return []Finding{f}
}
