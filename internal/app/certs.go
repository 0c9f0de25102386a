package app

import (
	"context"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/observe"
)

// Certificate is a certificate with how urgent it is.
type Certificate struct {
	cluster.Certificate
	Days  int    `json:"days"`  // until it expires; negative: since
	State string `json:"state"` // ok; soon: it should have been renewed, or will be; due: it is to be replaced now; expired
}

// What a certificate is.
const (
	CertOK      = "ok"
	CertSoon    = "soon"
	CertDue     = "due"
	CertExpired = "expired"
)

// Certificates are those of a cluster, the first to expire first.
type Certificates struct {
	Cluster      string        `json:"cluster"`
	Certificates []Certificate `json:"certificates"`
	Problems     []string      `json:"problems,omitempty"` // what could not be read
}

// Due counts those that are to be replaced, or have expired.
func (c *Certificates) Due() (n int) {
	for _, one := range c.Certificates {
		if one.State == CertDue || one.State == CertExpired {
			n++
		}
	}
	return n
}

// Certificates reads all certificates of a cluster: in files, in kubeconfigs, and as servers present them. Nothing is changed, and no lock is taken.
func (a *App) Certificates(ctx context.Context, r Request, o Observer) (*Certificates, error) {
	v, err := a.visit(ctx, r, o)
	if err != nil {
		return nil, err
	}
	defer v.close()
	all, problems := observe.Certificates(ctx, v.cluster, v.fleet.hosts, v.failed)
	is := &Certificates{Cluster: v.cluster.Name, Problems: problems}
	for _, c := range all {
		left := time.Until(c.Expires)
		one := Certificate{Certificate: c, Days: int(left.Hours() / 24), State: CertOK}
		switch {
		case left <= 0:
			one.State = CertExpired
		case left < c.Due():
			one.State = CertDue
		case left < c.Soon():
			one.State = CertSoon
		}
		is.Certificates = append(is.Certificates, one)
	}
	return is, nil
}
