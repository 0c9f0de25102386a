// Package fault adds to an error what the user needs beyond its text: the next
// move, whether trying again can help, and the exit code of the program.
package fault

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// Exit codes of the kubexm program, as documented for its users.
const (
	ExitFailed      = 1   // the work failed
	ExitUsage       = 2   // wrong usage or configuration
	ExitPreflight   = 3   // a machine is not fit
	ExitInterrupted = 130 // stopped by the user
)

type advised struct {
	error
	advice string
	whole  bool // says what is nearer the cause, too
}

func (e advised) Unwrap() error { return e.error }

// Advise attaches the next move to err. It returns nil for a nil err.
func Advise(err error, advice string) error {
	if err == nil {
		return nil
	}
	return advised{error: err, advice: advice}
}

// AdviseMore adds to the advice that err has. It returns nil for a nil err.
func AdviseMore(err error, more string) error {
	if err == nil {
		return nil
	}
	if advice := Advice(err); advice != "" {
		more = advice + "; " + more
	}
	return advised{err, more, true}
}

// Advice returns the innermost advice in err's tree: the one given nearest the
// cause, with what AdviseMore added. It is empty when there is none.
func Advice(err error) string {
	a, ok := err.(advised) //nolint:errorlint // this walks the tree itself
	if ok && a.whole {
		return a.advice
	}
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself
	case nil:
		return ""
	case interface{ Unwrap() []error }:
		for _, in := range e.Unwrap() {
			if s := Advice(in); s != "" {
				return s
			}
		}
	default:
		if s := Advice(errors.Unwrap(err)); s != "" {
			return s
		}
	}
	return a.advice
}

type transient struct{ error }

func (e transient) Unwrap() error { return e.error }

// Transient marks err as one that trying again may cure.
func Transient(err error) error {
	if err == nil {
		return nil
	}
	return transient{err}
}

// IsTransient reports whether err or an error it wraps is marked Transient.
func IsTransient(err error) bool {
	var t transient
	return errors.As(err, &t)
}

type away struct{ error }

func (e away) Unwrap() error { return e.error }

// Away marks err as one of a machine that cannot be reached, or not any more. Trying again may cure it.
func Away(err error) error {
	if err == nil {
		return nil
	}
	return Transient(away{err})
}

// IsAway reports whether err or an error it wraps is marked Away.
func IsAway(err error) bool {
	var a away
	return errors.As(err, &a)
}

type coded struct {
	error
	code int
}

func (e coded) Unwrap() error { return e.error }

// Exit attaches the program's exit code to err.
func Exit(err error, code int) error {
	if err == nil {
		return nil
	}
	return coded{err, code}
}

// ExitCode returns the exit code for err: 0 for nil, ExitFailed where none is attached.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	var c coded
	if errors.As(err, &c) {
		return c.code
	}
	return ExitFailed
}

// Caught turns a panic of its goroutine into the error of the function that defers it: a fault of kubexm
// ends what met it as any failure does, and tells where it was.
func Caught(err *error) { //nolint:gocritic // it is to be set
	if p := recover(); p != nil {
		*err = Advise(fmt.Errorf("a bug in kubexm: %v\n%s", p, debug.Stack()), "report it with all of this text; the command can be run again")
	}
}
