package place

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// S3 is a bucket, of Amazon or of a server that speaks as it does.
type S3 struct {
	Endpoint    string // https://minio.example.org:9000; http:// is allowed
	Region      string // empty: the one of an endpoint of Amazon, or us-east-1, which most servers expect
	Bucket      string
	Prefix      string // of the names of all objects, as a directory; may be empty
	AccessKey   string
	SecretKey   secret.Secret
	CA          []byte                                // certificates in PEM form that are trusted besides the system's
	VirtualHost bool                                  // the bucket is a part of the host's name; default: of the path
	Proxy       func(*http.Request) (*url.URL, error) // nil: from the environment
}

const (
	partSize = 16 << 20 // what Put has in memory; S3 takes 10,000 parts
	attempts = 3        // of a request, where trying again may help
	uploadID = "kubexm-upload"
)

var errUnfinished = errors.New("what was to be stored ended early")

type bucket struct {
	client   *minio.Core
	name     string
	prefix   string // "" or ends in "/"
	endpoint *url.URL
}

// NewS3 returns the place without connecting to it. Who uses it needs the permissions s3:ListBucket of the bucket, and s3:GetObject,
// s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload of what is below the prefix.
func NewS3(s S3) (Place, error) {
	u, err := url.Parse(s.Endpoint)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		// Without the text: it may have a password in it.
		return nil, fault.Advise(errors.New("the endpoint of the bucket is no URL of a server"), "give its scheme, host and port alone: https://minio.example.org:9000")
	}
	if err := s3utils.CheckValidBucketName(s.Bucket); err != nil {
		return nil, fmt.Errorf("the bucket %q: %w", s.Bucket, err)
	}
	if s.AccessKey == "" || s.SecretKey.IsZero() {
		return nil, fault.Advise(fmt.Errorf("the bucket %s has no access key, or no secret key", s.Bucket), "give both")
	}
	b := &bucket{name: s.Bucket, endpoint: u}
	if p := strings.Trim(s.Prefix, "/"); p != "" {
		b.prefix = p + "/"
	}
	transport, err := s.transport()
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupPath
	if s.VirtualHost {
		lookup = minio.BucketLookupDNS
	}
	b.client, err = minio.NewCore(u.Host, &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey.Reveal(), ""), Secure: u.Scheme == "https",
		Region: s.Region, CustomRegionViaURL: region, BucketLookup: lookup, Transport: door{transport}, MaxRetries: attempts,
	})
	if err != nil {
		return nil, fmt.Errorf("the endpoint %s: %w", u, err)
	}
	return b, nil
}

// region saves a request, and the permission for it, where the server has but one region.
func region(endpoint url.URL) string {
	if r := s3utils.GetRegionFromURL(endpoint); r != "" || s3utils.IsAmazonEndpoint(endpoint) {
		return r
	}
	return "us-east-1"
}

func (s S3) transport() (*http.Transport, error) {
	t := &http.Transport{
		Proxy: s.Proxy, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, TLSHandshakeTimeout: 10 * time.Second,
		ResponseHeaderTimeout: 2 * time.Minute, // to put parts together takes a while
		IdleConnTimeout:       30 * time.Second, DisableCompression: true,
	}
	if s.Proxy == nil {
		t.Proxy = http.ProxyFromEnvironment
	}
	if len(s.CA) == 0 {
		return t, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the CA certificates of the system: %w", err)
	}
	if !pool.AppendCertsFromPEM(s.CA) {
		return nil, fmt.Errorf("the CA of %s has no certificate in PEM form", s.Endpoint)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

// String implements fmt.Stringer.
func (b *bucket) String() string { return strings.TrimSuffix("s3://"+b.name+"/"+b.prefix, "/") }

// where is String for an error: which server it was.
func (b *bucket) where() string {
	return b.String() + " at " + b.endpoint.Scheme + "://" + b.endpoint.Host
}

// Put implements Place. Parts are stored as they come; they become the object with the last request, and are dropped when there is a failure. What
// was killed leaves them: a bucket wants the rule AbortIncompleteMultipartUpload.
func (b *bucket) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := plain(name); err != nil {
		return err
	}
	from, to := io.Pipe()
	defer context.AfterFunc(ctx, func() { from.CloseWithError(context.Cause(ctx)) })()
	defer to.CloseWithError(errUnfinished) // write may panic, and that must not look like the end
	id, sent := rand.Text(), make(chan error, 1)
	go func() {
		err := b.send(ctx, name, id, from)
		from.CloseWithError(err) // for write, which need not go on
		sent <- err
	}()
	wrote := write(to)
	if wrote == nil {
		_ = to.Close() // never fails
	} else {
		to.CloseWithError(errUnfinished) // never wrote itself: it may be io.EOF
	}
	err := <-sent
	switch {
	case err == nil:
		return nil
	case wrote != nil && errors.Is(err, errUnfinished):
		err = wrote
	case b.has(ctx, name, id, err):
		return nil
	default:
		err = b.explain(ctx, err)
	}
	return fmt.Errorf("storing %s in %s: %w", name, b.where(), err)
}

func (b *bucket) send(ctx context.Context, name, id string, from io.Reader) (err error) {
	defer fault.Caught(&err)
	_, err = b.client.Client.PutObject(ctx, b.name, b.prefix+name, from, -1, minio.PutObjectOptions{
		PartSize: partSize, SendContentMd5: true, // the server refuses what was damaged on the way
		ContentType: "application/octet-stream", UserMetadata: map[string]string{uploadID: id},
	})
	return err
}

// has reports whether an upload that the server says is not there was in fact completed: when the answer to the last request gets lost, the
// second attempt finds no upload any more.
func (b *bucket) has(ctx context.Context, name, id string, err error) bool {
	if minio.ToErrorResponse(err).Code != minio.NoSuchUpload {
		return false
	}
	info, err := b.client.StatObject(ctx, b.name, b.prefix+name, minio.StatObjectOptions{})
	return err == nil && info.Metadata.Get("X-Amz-Meta-"+uploadID) == id
}

// Open implements Place. Where the server knows a checksum of the whole object, the last read compares it.
func (b *bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := plain(name); err != nil {
		return nil, err
	}
	body, _, _, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{Checksum: true})
	if err != nil {
		return nil, fmt.Errorf("opening %s in %s: %w", name, b.where(), b.explain(ctx, err))
	}
	return reading{reader(func(p []byte) (int, error) {
		n, err := body.Read(p)
		if err != nil && !errors.Is(err, io.EOF) {
			err = fmt.Errorf("reading %s in %s: %w", name, b.where(), b.explain(ctx, err))
		}
		return n, err
	}), body}, nil
}

// List implements Place.
func (b *bucket) List(ctx context.Context, cluster string) ([]Object, error) {
	var all []Object
	for o := range b.client.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix + cluster + "-"}) {
		if o.Err != nil {
			return nil, fmt.Errorf("listing the backups in %s: %w", b.where(), b.explain(ctx, o.Err))
		}
		name := strings.TrimPrefix(o.Key, b.prefix)
		if taken, ours := parse(cluster, name); ours {
			all = append(all, Object{Name: name, Taken: taken, Size: o.Size})
		}
	}
	if ctx.Err() != nil { // then there may be no error object
		return nil, fmt.Errorf("listing the backups in %s: %w", b.where(), context.Cause(ctx))
	}
	return sorted(all), nil
}

// Remove implements Place.
func (b *bucket) Remove(ctx context.Context, name string) error {
	if err := plain(name); err != nil {
		return err
	}
	if err := b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{}); err != nil {
		return fmt.Errorf("removing %s from %s: %w", name, b.where(), b.explain(ctx, err))
	}
	return nil
}
