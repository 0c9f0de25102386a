package source

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// TestPatience shows how long a server that asks for time is left alone.
func TestPatience(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{0: time.Second, 30 * time.Second: 30 * time.Second, time.Hour: 2 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			begun, tries := time.Now(), 0
			err := Try(t.Context(), Retry{Rounds: 5, Pause: time.Second, Longest: 2 * time.Minute}, []string{"x"}, func(string) error {
				if tries++; tries > 1 {
					return nil
				}
				return fault.Transient(&StatusError{Code: http.StatusTooManyRequests, after: after})
			})
			if took := time.Since(begun); err != nil || took < want/2 || took > want*3/2 {
				t.Errorf("asked for %v: waited %v, want %v; %v", after, took, want, err)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	if got := retryAfter("17"); got != 17*time.Second {
		t.Errorf("seconds: %v", got)
	}
	if got := retryAfter(time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)); got < 58*time.Minute || got > time.Hour {
		t.Errorf("a date: %v", got)
	}
	if got := retryAfter("soon"); got != 0 {
		t.Errorf("nonsense: %v", got)
	}
}
