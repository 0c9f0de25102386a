package kubetest

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Candidate takes part in the election that is held with a lease in kube-system, until the test ends. leads is closed
// when it leads, lost when it does not any more: 0.6 s after it could last renew the lease.
func Candidate(t testing.TB, client kubernetes.Interface, lease, name string) (leads, lost <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	first, last, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: lease}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		},
		LeaseDuration: time.Second, RenewDeadline: 600 * time.Millisecond, RetryPeriod: 200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(first) }, OnStoppedLeading: func() { close(last) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { defer close(done); elector.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return first, last
}
