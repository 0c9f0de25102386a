package place

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/minio/minio-go/v7"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

var errCut = errors.New("the connection was cut")

// door makes errors of requests such that the client retries what may be cured, and can be told apart: it replaces those of cut connections by a text.
type door struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (d door) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := d.Transport.RoundTrip(req)
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return nil, unknown
	}
	if isCut(err) {
		return nil, errCut
	}
	return resp, err
}

func isCut(err error) bool {
	for _, of := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, errCut} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// explain says why a request failed, and what to do.
func (b *bucket) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return b.refused(answer)
	}
	if in, ok := errors.AsType[*url.Error](err); ok {
		err = in.Err // its URL is long, and is known
	}
	return b.unanswered(err)
}

// refused explains the answer of the server.
func (b *bucket) refused(a minio.ErrorResponse) error {
	if a.Code == minio.NoSuchKey {
		return fault.Advise(fs.ErrNotExist, noSuch)
	}
	err := errors.New(short(a))
	switch a.Code {
	case minio.NoSuchBucket:
		return fault.Advise(err, "make the bucket "+b.name+" there, or correct its name")
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "XAdminUserNotFound": // the last is of versitygw
		return fault.Advise(err, "correct the access key or its secret key")
	case "RequestTimeTooSkewed":
		return fault.Advise(err, "set the clock of this machine right, or that of the server")
	case "AuthorizationHeaderMalformed", minio.InvalidRegion, "PermanentRedirect", "TemporaryRedirect":
		return fault.Advise(err, strings.TrimSpace("give the region that the bucket is in "+a.Region))
	case "XMinioStorageFull", "QuotaExceeded":
		return fault.Advise(err, "free space on the server, or keep fewer backups")
	case minio.NoSuchUpload:
		return fault.Transient(fault.Advise(err, "run it again; if it stays so, see whether a rule of the bucket drops uploads too early"))
	case "EntityTooLarge":
		return fault.Advise(err, fmt.Sprintf("a backup may have %d GB in a bucket: keep this one in a directory", int64(partSize)*10_000/1e9))
	}
	switch c := a.StatusCode; {
	case c == http.StatusForbidden, c == http.StatusUnauthorized, a.Code == minio.AccessDenied:
		return fault.Advise(err, "allow the access key to list the bucket "+b.name+", and to get, put and delete objects below "+b.String()+
			" (s3:ListBucket, s3:GetObject, s3:PutObject, s3:AbortMultipartUpload, s3:DeleteObject)")
	case c == http.StatusProxyAuthRequired:
		return fault.Advise(err, "give the proxy's URL with the login that it needs")
	case c == http.StatusInsufficientStorage:
		return fault.Advise(err, "free space on the server, or keep fewer backups")
	case c >= 500, c == http.StatusTooManyRequests, c == http.StatusRequestTimeout:
		return fault.Transient(fault.Advise(err, "try again later; if it stays so, look at the log of the server"))
	}
	return fault.Advise(err, "check that "+b.endpoint.Host+" serves S3, and its log"+b.orTLS())
}

// short is the answer in one line: a proxy may answer with a page.
func short(a minio.ErrorResponse) string {
	text := a.Error()
	if !strings.Contains(text, a.Code) {
		text = a.Code + ": " + text
	}
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200]) + "..."
	}
	if a.RequestID != "" { // the operator of the server finds it by this
		text += " (request " + a.RequestID + ")"
	}
	return text
}

// unanswered explains why there is no answer of a server of S3.
func (b *bucket) unanswered(err error) error {
	host := b.endpoint.Host
	op, _ := errors.AsType[*net.OpError](err)
	dns, _ := errors.AsType[*net.DNSError](err)
	var unknown x509.UnknownAuthorityError
	var verify *tls.CertificateVerificationError
	var page *xml.SyntaxError
	var slow net.Error
	switch {
	case errors.As(err, &unknown):
		return fault.Advise(err, "if it is to be trusted, give the CA certificate of "+host)
	case errors.As(err, &verify):
		return fault.Advise(err, "give the endpoint a name that its certificate is for, or renew the certificate")
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fault.Advise(err, "it speaks no TLS: the endpoint begins with http://, or has another port")
	case strings.Contains(err.Error(), "checksum mismatch"): // minio-go has no type for it
		return fault.Advise(err, "this backup is damaged: use another one")
	case op != nil && op.Op == "proxyconnect":
		return fault.Transient(fault.Advise(err, "check that the proxy is up and is the right one"))
	case errors.Is(err, syscall.ECONNREFUSED):
		return fault.Transient(fault.Advise(err, "check that the server of the bucket is up, and the port in "+b.endpoint.String()))
	case dns != nil && dns.IsNotFound:
		return fault.Advise(err, "correct the host name in "+b.endpoint.String()+", or add it to DNS")
	case isCut(err):
		return fault.Transient(fault.Advise(errCut, "run it again; if it stays so, check the network, and proxies and load balancers before "+host+b.orTLS()))
	case errors.As(err, &slow) && slow.Timeout(), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fault.Transient(fault.Advise(err, "check the network and firewalls between this machine and "+host))
	case errors.As(err, &page):
		return fault.Advise(err, "check that "+host+" serves S3: that was no answer of it")
	}
	return fault.Advise(err, "check that "+host+" serves S3, and the network to it"+b.orTLS())
}

// orTLS is a guess at why a server answers in no way that is understood, or hangs up.
func (b *bucket) orTLS() string {
	if b.endpoint.Scheme == "https" {
		return ""
	}
	return "; if it speaks TLS, the endpoint begins with https://"
}
