package kube

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

const (
	// deprecatedCalls counts nothing: it is 1 for each deprecated API that was called (apiserver/pkg/endpoints/metrics).
	deprecatedCalls = "apiserver_requested_deprecated_apis"

	onePage = 500 // objects that one request lists
)

// RemovedUse is something that does not work any more once an API is removed.
type RemovedUse struct {
	RemovedAPI
	Where string // "called on node1 since it started", "Deployment shop/web by kubectl apply", "Helm release shop/web revision 3"
}

// String is the API and where it is used.
func (u RemovedUse) String() string { return u.RemovedAPI.String() + ": " + u.Where }

// uses collects what uses APIs that are removed after one minor version and up to another.
type uses struct {
	from, to int
	known    map[schema.GroupVersionKind]RemovedAPI
	found    map[RemovedUse]bool
	unread   []string
}

// RemovedUses finds, without any change, what uses APIs that the minor version from of Kubernetes 1 serves and the version to does
// not: who calls them still, by the metrics of servers, a client of each API server by the name of its host; objects that were
// applied by kubectl, which compares with what it applied last; and manifests of Helm releases, which Helm reads before it upgrades
// them. An entry of managedFields is no use: it keeps the version of its day for ever. What is found is sorted by the version of
// the removal; unread says in sentences what could not be looked into, and why. An error names what was asked.
func (c *Client) RemovedUses(ctx context.Context, from, to int, servers map[string]*Client) (found []RemovedUse, unread []string, err error) {
	u := &uses{from: from, to: to, known: removedAPIs(), found: map[RemovedUse]bool{}}
	if from >= to {
		return nil, nil, nil
	}
	for _, host := range slices.Sorted(maps.Keys(servers)) {
		if err := u.called(ctx, host, servers[host]); err != nil {
			return nil, nil, err
		}
	}
	if err := u.applied(ctx, c); err != nil {
		return nil, nil, err
	}
	if err := u.released(ctx, c); err != nil {
		return nil, nil, err
	}
	found = slices.SortedFunc(maps.Keys(u.found), func(a, b RemovedUse) int {
		return cmp.Or(cmp.Compare(a.RemovedIn, b.RemovedIn), strings.Compare(a.String(), b.String()))
	})
	return found, sorted(u.unread), nil
}

// add notes a use of an API, if it is one that goes.
func (u *uses) add(api RemovedAPI, where string) {
	if u.goes(api) {
		u.found[RemovedUse{api, where}] = true
	}
}

func (u *uses) goes(api RemovedAPI) bool { return api.RemovedIn > u.from && api.RemovedIn <= u.to }

// called asks an API server which deprecated APIs were called since it started.
func (u *uses) called(ctx context.Context, host string, server *Client) error {
	kinds := map[schema.GroupVersionResource]RemovedAPI{}
	for _, api := range u.known {
		kinds[api.resource()] = api
	}
	return server.retry(ctx, "reading the metrics of the API server on "+host, func(ctx context.Context) error {
		calls, err := server.deprecatedCalls(ctx)
		for _, call := range calls {
			api, known := kinds[schema.GroupVersionResource{Group: call["group"], Version: call["version"], Resource: call["resource"]}]
			if !known { // the server may know what k8s.io/api has no type of
				name := strings.TrimSuffix(call["resource"]+"/"+call["subresource"], "/")
				api = RemovedAPI{API: schema.GroupVersionKind{Group: call["group"], Version: call["version"], Kind: name}, RemovedIn: minorOf(call["removed_release"])}
			}
			u.add(api, "called on "+host+" since it started")
		}
		return err
	})
}

// deprecatedCalls returns the labels of a metric. All metrics are some megabytes: only what is wanted of them is kept and parsed.
func (c *Client) deprecatedCalls(ctx context.Context) (calls []map[string]string, err error) {
	all, err := c.server.RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = all.Close() }()
	var wanted bytes.Buffer
	lines := bufio.NewScanner(all)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte(deprecatedCalls+"{")) {
			wanted.WriteString(lines.Text() + "\n")
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	metrics, err := parser.TextToMetricFamilies(&wanted)
	for _, one := range metrics[deprecatedCalls].GetMetric() {
		call := map[string]string{}
		for _, label := range one.GetLabel() {
			call[label.GetName()] = label.GetValue()
		}
		calls = append(calls, call)
	}
	return calls, err
}

// applied looks for what kubectl applied last as one of the APIs that go, among the objects of their kinds.
func (u *uses) applied(ctx context.Context, c *Client) error {
	kinds := map[schema.GroupKind]bool{}
	for _, api := range u.known {
		if u.goes(api) {
			kinds[api.API.GroupKind()] = true
			kinds[api.Replacement.GroupKind()] = true
		}
	}
	delete(kinds, schema.GroupKind{})
	var served meta.RESTMapper
	err := c.retry(ctx, "asking what the API server serves", func(ctx context.Context) error {
		groups, err := restmapper.GetAPIGroupResourcesWithContext(ctx, c.server)
		if err == nil {
			served = restmapper.NewDiscoveryRESTMapper(groups)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) }) {
		mapping, err := served.RESTMapping(kind) // of the version that the server prefers
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("finding the objects of kind %s: %w", kind, err)
		}
		err = c.each(ctx, mapping.Resource, metav1.ListOptions{Limit: onePage}, func(obj *unstructured.Unstructured) {
			if last := obj.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; last != "" {
				u.read(title(obj)+" by kubectl apply", last)
			}
		})
		if err != nil && !absent(err) && !apierrors.IsMethodNotSupported(err) { // reviews, for one, are never kept
			return err
		}
	}
	return nil
}

// each goes through all objects of a resource. It holds no more of them than the limit of the options.
func (c *Client) each(ctx context.Context, of schema.GroupVersionResource, options metav1.ListOptions, do func(*unstructured.Unstructured)) error {
	for {
		var page *unstructured.UnstructuredList
		err := c.retry(ctx, "listing "+of.GroupResource().String(), func(ctx context.Context) (err error) {
			page, err = c.Dynamic.Resource(of).List(ctx, options)
			var expired apierrors.APIStatus
			if apierrors.IsResourceExpired(err) && errors.As(err, &expired) { // it took minutes: the error has where to go on
				options.Continue = expired.Status().Continue
			}
			return err
		})
		if err != nil {
			return err
		}
		for i := range page.Items {
			do(&page.Items[i])
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// read looks for APIs that go in documents of YAML or JSON.
func (u *uses) read(where, manifest string) {
	documents := yamlutil.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
	for {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		var is struct {
			metav1.TypeMeta
			Items []metav1.TypeMeta
		}
		if err == nil {
			err = yaml.Unmarshal(doc, &is.TypeMeta)
		}
		if err == nil && strings.HasSuffix(is.Kind, "List") {
			err = yaml.Unmarshal(doc, &is)
		}
		if err != nil {
			u.cannot(where, err)
		}
		for _, one := range append(is.Items, is.TypeMeta) {
			u.add(u.known[one.GroupVersionKind()], where)
		}
	}
}

func (u *uses) cannot(where string, err error) {
	u.unread = append(u.unread, fmt.Sprintf("%s cannot be read: %v", where, err))
}
