package kube

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	certutil "k8s.io/client-go/util/cert"
)

// bundled are the kinds of objects that may tell the API server by which authority it is to believe a program that it calls.
var bundled = []schema.GroupVersionResource{
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
}

// Trusting lists objects, as Kind name, with a caBundle (PEM) that has one of some authorities, and not the one that signs now. A bundle that cannot be read has none.
func (c *Client) Trusting(ctx context.Context, trusted []byte, signer *x509.Certificate) (all []string, err error) {
	authorities, err := certutil.ParseCertsPEM(trusted)
	if err != nil {
		return nil, err
	}
	for _, kind := range bundled {
		var found []string
		err := c.retry(ctx, "listing "+kind.Resource, func(ctx context.Context) error {
			found = nil
			list, err := c.Dynamic.Resource(kind).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err != nil {
				return err
			}
			for _, o := range list.Items {
				for _, b := range bundles(o.Object) {
					if slices.ContainsFunc(authorities, func(a *x509.Certificate) bool { return has(b, a) }) && !has(b, signer) {
						found = append(found, o.GetKind()+" "+o.GetName())
						break
					}
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func has(bundle []*x509.Certificate, authority *x509.Certificate) bool {
	return slices.ContainsFunc(bundle, func(c *x509.Certificate) bool {
		return bytes.Equal(c.RawSubjectPublicKeyInfo, authority.RawSubjectPublicKeyInfo)
	})
}

// bundles are the values of all fields caBundle in an object.
func bundles(v any) (all [][]*x509.Certificate) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			all = append(all, bundles(one)...)
		}
	case map[string]any:
		for name, one := range v {
			text, is := one.(string)
			if name != "caBundle" || !is {
				all = append(all, bundles(one)...)
				continue
			}
			data, err := base64.StdEncoding.DecodeString(text)
			if certs, parsed := certutil.ParseCertsPEM(data); errors.Join(err, parsed) == nil {
				all = append(all, certs)
			}
		}
	}
	return all
}
