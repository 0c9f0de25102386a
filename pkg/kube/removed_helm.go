package kube

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	releasesPage = 20       // releases that one request lists: each may have 1 MB
	mostRelease  = 64 << 20 // bytes of a release without compression, more than which are not read
)

// release is the part of a Helm release that says what is in the cluster by it.
type release struct {
	Manifest string
	Hooks    []struct{ Manifest string }
}

// released looks for APIs that go in the manifests of Helm's releases.
func (u *uses) released(ctx context.Context, c *Client) error {
	deployed := metav1.ListOptions{Limit: releasesPage, LabelSelector: "owner=helm,status=deployed", FieldSelector: "type=helm.sh/release.v1"}
	return c.each(ctx, corev1.SchemeGroupVersion.WithResource("secrets"), deployed, func(secret *unstructured.Unstructured) {
		is := secret.GetLabels()
		where := fmt.Sprintf("Helm release %s/%s revision %s", secret.GetNamespace(), cmp.Or(is["name"], secret.GetName()), cmp.Or(is["version"], "unknown"))
		r, err := readRelease(secret)
		if err != nil {
			u.cannot(where, err)
			return
		}
		u.read(where, r.Manifest)
		for _, hook := range r.Hooks {
			u.read(where, hook.Manifest)
		}
	})
}

// readRelease reads JSON, compressed, in base64 once by Helm (helm.sh/helm/v3/pkg/storage/driver/util.go) and once as all data of Secrets is.
func readRelease(secret *unstructured.Unstructured) (r release, err error) {
	text, _, _ := unstructured.NestedString(secret.Object, "data", "release")
	packed := []byte(text)
	for range 2 {
		if packed, err = base64.StdEncoding.DecodeString(string(packed)); err != nil {
			return r, err
		}
	}
	var in io.Reader = bytes.NewReader(packed)
	if bytes.HasPrefix(packed, []byte{0x1f, 0x8b}) { // Helm 3 began without
		if in, err = gzip.NewReader(in); err != nil {
			return r, err
		}
	}
	err = json.NewDecoder(io.LimitReader(in, mostRelease)).Decode(&r)
	return r, err
}
