package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// oneWatch bounds a single watch, and so how long a connection that died silently
// is believed in.
const oneWatch = 30 * time.Second

// verdict judges an object, nil where it does not exist: whether it is as wanted,
// what there is to say about it, and an error where waiting longer is no use.
type verdict func(live *unstructured.Unstructured) (done bool, seen string, err error)

// WaitReady waits until each object does what it is there for, mostly by the rules of
// kstatus: a Deployment, DaemonSet or StatefulSet is rolled out, a Job complete, a
// CustomResourceDefinition established, a volume bound. It waits until ctx ends;
// the error then says what was last seen of the object, its pods and its events.
func (c *Client) WaitReady(ctx context.Context, objs ...*unstructured.Unstructured) error {
	for _, obj := range objs {
		if err := c.wait(ctx, "waiting for "+title(obj), obj, c.rolledOut(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// rolledOut judges by the rules of kstatus; but a DaemonSet or a Deployment owes no pods to machines
// that are lost.
func (c *Client) rolledOut(ctx context.Context) verdict {
	return func(live *unstructured.Unstructured) (bool, string, error) {
		if live == nil {
			return false, "it does not exist", nil
		}
		result, err := status.Compute(live)
		if err != nil {
			return false, "", err
		}
		if result.Status == status.FailedStatus && live.GetKind() == "Job" { // others, such as a Deployment that is late, may still come right
			return false, "", errors.New(result.Message)
		}
		if live.GetKind() == "Job" {
			return ended(live), result.Message, nil
		}
		return result.Status == status.CurrentStatus || c.withoutLost(ctx, live), result.Message, nil
	}
}

// ended reports whether a Job is complete, or is to do nothing. For kstatus it is enough that it has begun.
func ended(job *unstructured.Unstructured) bool {
	suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
	is, err := status.GetObjectWithConditions(job.Object)
	return suspended || err == nil && slices.ContainsFunc(is.Status.Conditions, func(c status.BasicCondition) bool {
		return c.Type == "Complete" && c.Status == corev1.ConditionTrue
	})
}

// withoutLost reports whether a DaemonSet or a Deployment is rolled out but for its pods on nodes whose
// kubelets have not been heard of for so long that Kubernetes gave them up. Those of a Deployment stay
// bound to such a node for five minutes more.
func (c *Client) withoutLost(ctx context.Context, live *unstructured.Unstructured) bool {
	kind := live.GetKind()
	if kind != "DaemonSet" && kind != "Deployment" {
		return false
	}
	nodes, err1 := c.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	pods, err2 := c.podsOf(ctx, live)
	if err1 != nil || err2 != nil {
		return false // what is missing is told
	}
	lost := map[string]bool{}
	for i := range nodes.Items {
		lost[nodes.Items[i].Name] = slices.ContainsFunc(nodes.Items[i].Status.Conditions, func(is corev1.NodeCondition) bool {
			return is.Type == corev1.NodeReady && is.Status == corev1.ConditionUnknown
		})
	}
	desired, _, _ := unstructured.NestedInt64(live.Object, "status", "desiredNumberScheduled")
	ready, gone := int64(0), int64(0)
	for i := range pods {
		switch {
		case lost[pods[i].Spec.NodeName]:
			if kind == "DaemonSet" || pods[i].DeletionTimestamp == nil { // a Deployment has a new one, then
				gone++
			}
		case slices.ContainsFunc(pods[i].Status.Conditions, func(is corev1.PodCondition) bool {
			return is.Type == corev1.PodReady && is.Status == corev1.ConditionTrue
		}):
			ready++
		}
	}
	owes := map[string]int64{"desiredNumberScheduled": desired - gone, "numberReady": ready, "numberAvailable": ready}
	if kind == "Deployment" {
		owes = map[string]int64{"readyReplicas": ready + gone, "availableReplicas": ready + gone}
	}
	owed := live.DeepCopy()
	for field, n := range owes {
		if unstructured.SetNestedField(owed.Object, n, "status", field) != nil {
			return false
		}
	}
	result, err := status.Compute(owed)
	return gone > 0 && ready > 0 && err == nil && result.Status == status.CurrentStatus
}

// WaitNodeReady waits until a node is Ready, as WaitReady does.
func (c *Client) WaitNodeReady(ctx context.Context, name string) error {
	return c.wait(ctx, "waiting for node "+name+" to be Ready", object("v1", "Node", name), nodeReady)
}

// WaitNodeBack waits until a node is Ready in a boot of its machine. Until its kubelet reports, the API tells how it was before.
func (c *Client) WaitNodeBack(ctx context.Context, name, boot string) error {
	return c.wait(ctx, "waiting for node "+name+" to be Ready again", object("v1", "Node", name), nodeBack(boot))
}

func nodeBack(boot string) verdict {
	return func(live *unstructured.Unstructured) (bool, string, error) {
		ready, seen, err := nodeReady(live)
		if live != nil && ready {
			if is, _, _ := unstructured.NestedString(live.Object, "status", "nodeInfo", "bootID"); is != boot {
				return false, "its kubelet has not reported since the machine has started", nil
			}
		}
		return ready, seen, err
	}
}

func nodeReady(live *unstructured.Unstructured) (bool, string, error) {
	if live == nil {
		return false, "its kubelet has not registered it", nil
	}
	var node corev1.Node
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &node); err != nil {
		return false, "", err
	}
	for _, is := range node.Status.Conditions {
		if is.Type == corev1.NodeReady {
			return is.Status == corev1.ConditionTrue, is.Reason + ": " + is.Message, nil
		}
	}
	return false, "its kubelet has reported nothing yet", nil
}

func (c *Client) waitGone(ctx context.Context, obj *unstructured.Unstructured) error {
	return c.wait(ctx, "waiting until "+title(obj)+" is gone", obj, func(live *unstructured.Unstructured) (bool, string, error) {
		if live == nil {
			return true, "", nil
		}
		seen := fmt.Sprintf("it is still there, finalizers %q", live.GetFinalizers())
		if result, err := status.Compute(live); err == nil && result.Message != "" {
			seen += ": " + result.Message
		}
		return false, seen, nil
	})
}

// object makes the reference to an object without a namespace.
func object(apiVersion, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	return o
}

// mostAway is how long a wait goes on while the machine through which the API server is reached is away. A connection that was only cut is made again
// before.
const mostAway = time.Minute

// wait follows an object until judge is content, through losses of the server. When
// time runs out the error tells what was seen last, and a little of the time is
// kept to ask why.
func (c *Client) wait(ctx context.Context, doing string, obj *unstructured.Unstructured, judge verdict) error {
	waiting := ctx
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		waiting, cancel = context.WithDeadline(ctx, end.Add(-min(5*time.Second, time.Until(end)/10)))
		defer cancel()
	}
	seen := "it has not been seen"
	pause := 100 * time.Millisecond
	var away time.Time // since when the machine through which the server is reached cannot be reached itself
	for {
		start, turn := time.Now(), c.servers.turn.Load()
		done, err := c.follow(waiting, obj, func(live *unstructured.Unstructured) (done bool, err error) {
			done, seen, err = judge(live)
			return done, err
		})
		switch {
		case done:
			return nil
		case fault.IsAway(err) && !away.IsZero() && time.Since(away) > mostAway:
			return fmt.Errorf("%s: %w", doing, err)
		case err != nil && waiting.Err() == nil && !transient(err) && !errors.Is(err, context.DeadlineExceeded): // that is a server that hangs
			return explain(fmt.Errorf("%s: %w%s", doing, err, c.why(ctx, obj)))
		case err != nil && !errors.Is(err, waiting.Err()):
			seen = err.Error()
			c.servers.next(turn)
		}
		switch {
		case fault.IsAway(err) && away.IsZero():
			away = start
		case !fault.IsAway(err) && !errors.Is(err, context.DeadlineExceeded): // which says nothing of that
			away = time.Time{}
		}
		if time.Since(start) > time.Second { // it was reached: not the time to slow down
			pause = 100 * time.Millisecond
		}
		if !sleep(waiting, pause) {
			break
		}
		pause = min(2*pause, 3*time.Second)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	}
	return fmt.Errorf("%s: %w: %s%s", doing, context.DeadlineExceeded, seen, c.why(ctx, obj))
}

// follow lists and then watches one object for a while.
func (c *Client) follow(ctx context.Context, obj *unstructured.Unstructured, look func(*unstructured.Unstructured) (bool, error)) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, oneWatch+5*time.Second)
	defer cancel()
	on, err := c.on(ctx, obj)
	if absent(err) {
		return look(nil)
	}
	if err != nil {
		return false, err
	}
	seconds := int64(oneWatch / time.Second)
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, obj.GetName()).String(), TimeoutSeconds: &seconds}
	list, err := on.List(ctx, only)
	if absent(err) { // the kind is gone
		c.forget(ctx)
		return look(nil)
	}
	if err != nil {
		return false, err
	}
	var live *unstructured.Unstructured
	if len(list.Items) > 0 {
		live = &list.Items[0]
	}
	if done, err := look(live); done || err != nil {
		return done, err
	}
	only.ResourceVersion = list.GetResourceVersion()
	events, err := on.Watch(ctx, only)
	if err != nil {
		return false, err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		live, _ := event.Object.(*unstructured.Unstructured)
		switch event.Type {
		case watch.Error:
			return false, apierrors.FromObject(event.Object)
		case watch.Deleted:
			live = nil
		}
		if done, err := look(live); done || err != nil {
			return done, err
		}
	}
	return false, ctx.Err()
}

// APIReady returns nil if a server says it is ready to serve; else the error
// names the checks that fail.
func (c *Client) APIReady(ctx context.Context) error {
	var body []byte
	err := c.once(ctx, func(ctx context.Context) (err error) {
		body, err = c.server.RESTClient().Get().AbsPath("/readyz").Param("verbose", "").MaxRetries(0).DoRaw(ctx)
		return err
	})
	if err == nil {
		return nil
	}
	var failing []string
	for line := range strings.Lines(string(body)) {
		if check, ok := strings.CutPrefix(line, "[-]"); ok {
			failing = append(failing, strings.TrimSpace(check))
		}
	}
	if len(failing) > 0 {
		err = fault.Transient(errors.New(strings.Join(failing, "; ")))
	}
	return explain(fmt.Errorf("asking the API server whether it is ready: %w", err))
}

// WaitAPIReady asks until the server is ready or ctx ends. The error is then that of
// the last answer.
func (c *Client) WaitAPIReady(ctx context.Context) error {
	var last error
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		err := c.APIReady(ctx)
		if err == nil || !fault.IsTransient(err) {
			return err
		}
		if ctx.Err() == nil || last == nil { // else it only says that time ran out
			last = err
		}
		if !sleep(ctx, pause) {
			return last
		}
	}
}

// Version returns the server's version: "v1.37.0".
func (c *Client) Version(ctx context.Context) (version string, err error) {
	err = c.retry(ctx, "asking the API server for its version", func(ctx context.Context) error {
		info, err := c.server.ServerVersionWithContext(ctx)
		if err == nil {
			version = info.GitVersion
		}
		return err
	})
	return version, err
}
