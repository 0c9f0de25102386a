package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

func TestAdvice(t *testing.T) {
	cause := errors.New("cause")
	near := fault.Advise(cause, "near")
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"nil":            {nil, ""},
		"none":           {cause, ""},
		"wrapped":        {fmt.Errorf("doing: %w", near), "near"},
		"nearest wins":   {fault.Advise(fmt.Errorf("doing: %w", near), "far"), "near"},
		"of several":     {errors.Join(cause, near), "near"},
		"under a code":   {fault.Exit(near, fault.ExitUsage), "near"},
		"over several":   {fault.Advise(errors.Join(cause, cause), "far"), "far"},
		"advice of nil":  {fault.Advise(nil, "x"), ""},
		"also transient": {fault.Transient(near), "near"},
		"more":           {fault.Exit(fault.AdviseMore(near, "far"), 1), "near; far"},
		"more of none":   {fault.AdviseMore(cause, "far"), "far"},
		"more of nil":    {fault.AdviseMore(nil, "far"), ""},
	} {
		if got := fault.Advice(tt.err); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestMarks(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("doing: %w", fault.Transient(fault.Exit(cause, fault.ExitPreflight)))
	if !fault.IsTransient(err) || fault.ExitCode(err) != fault.ExitPreflight || !errors.Is(err, cause) {
		t.Errorf("marks are lost: %v", err)
	}
	if fault.IsTransient(cause) || fault.ExitCode(cause) != fault.ExitFailed || fault.ExitCode(nil) != 0 {
		t.Error("marks where none were made")
	}
	if fault.Transient(nil) != nil || fault.Exit(nil, 2) != nil {
		t.Error("no error became one")
	}
}
