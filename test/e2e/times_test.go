//go:build e2e

package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// times is how long the parts took, in their order.
var times struct {
	sync.Mutex
	names []string
	took  map[string]time.Duration
}

// note adds to the time of a part.
func note(name string, took time.Duration) {
	times.Lock()
	defer times.Unlock()
	if times.took == nil {
		times.took = map[string]time.Duration{}
	}
	if _, ok := times.took[name]; !ok {
		times.names = append(times.names, name)
	}
	times.took[name] += took
	fmt.Printf("    %-60s %6.1f s\n", name, took.Seconds())
}

// timed notes how long the rest of a test takes: defer timed(t)().
func timed(t *testing.T) func() {
	begin := time.Now()
	return func() { note(t.Name(), time.Since(begin)) }
}

func printTimes() {
	fmt.Println("\ntimes of the parts:")
	for _, name := range times.names {
		fmt.Printf("  %-62s %6.1f s\n", name, times.took[name].Seconds())
	}
}
