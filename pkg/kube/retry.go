package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// oneCall bounds a single request: the API server itself gives up after a minute.
const oneCall = 65 * time.Second

type impatient struct{}

// Impatient returns a context under which no call is repeated, as for a look at
// what may well not be there.
func Impatient(ctx context.Context) context.Context { return context.WithValue(ctx, impatient{}, true) }

// retry repeats call while it fails for a passing reason on all servers, for as long as the
// client's patience.
func (c *Client) retry(ctx context.Context, doing string, call func(context.Context) error) error {
	end := time.Now().Add(c.patience)
	if ctx.Value(impatient{}) != nil {
		end = time.Now()
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 3*time.Second) {
		err := c.once(ctx, call)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !transient(err) && !meta.IsNoMatchError(err) || time.Now().Add(pause).After(end) {
			return explain(fmt.Errorf("%s: %w", doing, err))
		}
		if !sleep(ctx, pause) {
			return explain(fmt.Errorf("%s: %w", doing, err))
		}
	}
}

// sleep waits about d, and reports whether ctx lasted that long.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// transient reports whether the call that failed with err may succeed later: the
// server was not reached, was starting or stopping, was busy, or its etcd or a
// webhook of its was.
func transient(err error) bool {
	if fault.IsTransient(err) {
		return true
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		invalid := strings.HasPrefix(status.Status().Message, "failed to create typed patch object") // comes as 500
		return code >= 500 && !invalid || code == http.StatusTooManyRequests || code == http.StatusGone ||
			apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	}
	if untrusted(err) {
		return false
	}
	var lost *url.Error
	return errors.As(err, &lost) || errors.Is(err, io.ErrUnexpectedEOF) || utilnet.IsConnectionReset(err)
}

// untrusted reports whether one side refused the other's certificate.
func untrusted(err error) bool {
	var theirs *tls.CertificateVerificationError
	var ours *net.OpError // crypto/tls: an alert that the other side sent
	return errors.As(err, &theirs) || errors.As(err, &ours) && ours.Op == "remote error"
}

// explain marks what may pass, and adds the next move where the cause is known.
func explain(err error) error {
	switch {
	case untrusted(err) || apierrors.IsUnauthorized(err):
		return fault.Advise(err, "compare the certificate authority in the cluster's certs directory with the one on the masters")
	case meta.IsNoMatchError(err):
		return fault.Advise(err, "install what defines this kind (a CustomResourceDefinition) first, or correct apiVersion and kind")
	case !transient(err):
		return err
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		err = fault.Advise(err, "see whether kube-apiserver runs there: crictl ps -a --name kube-apiserver, or journalctl -u kube-apiserver")
	}
	return fault.Transient(err)
}
