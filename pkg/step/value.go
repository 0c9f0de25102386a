package step

import (
	"errors"
	"reflect"
	"sync/atomic"
)

// Value is produced by one step of a run and read by later ones. The plan adds
// the edges and refuses a value that is read and never written.
type Value[T any] struct {
	name string
	p    atomic.Pointer[T]
}

// NewValue returns an empty value; its name appears in plans.
func NewValue[T any](name string) *Value[T] { return &Value[T]{name: name} }

// Out is the field by which a step writes a value.
type Out[T any] struct{ v *Value[T] }

// In is the field by which a step reads a value.
type In[T any] struct{ v *Value[T] }

// Out returns the writing end, for one step.
func (v *Value[T]) Out() Out[T] { return Out[T]{v} }

// In returns a reading end.
func (v *Value[T]) In() In[T] { return In[T]{v} }

// ErrUnknown says that the step that writes a value has not run, as in a dry run.
var ErrUnknown = errors.New("known only after the run")

// Set writes the value.
func (o Out[T]) Set(x T) { o.v.p.Store(&x) }

// Get returns the value, or ErrUnknown.
func (i In[T]) Get() (x T, err error) {
	if p := i.v.p.Load(); p != nil {
		return *p, nil
	}
	return x, ErrUnknown
}

// MarshalText gives the name of the value, never the value.
func (o Out[T]) MarshalText() ([]byte, error) { return []byte(o.v.name), nil }

// MarshalText gives the name of the value, never the value.
func (i In[T]) MarshalText() ([]byte, error) { return []byte(i.v.name), nil }

func (o Out[T]) writes() any { return o.v }
func (i In[T]) reads() any   { return i.v }

// Refs returns identities of the values that s reads and writes, found in the
// exported fields of s and of the steps inside it.
func Refs(s Step) (reads, writes []any) {
	if a, ok := Unwrap(s).(Around); ok {
		for _, in := range append([]Step{a.Before, a.After}, a.Inner...) {
			r, w := Refs(in)
			reads, writes = append(reads, r...), append(writes, w...)
		}
		return reads, writes
	}
	v := reflect.Indirect(reflect.ValueOf(Unwrap(s)))
	if v.Kind() != reflect.Struct {
		return nil, nil
	}
	for i := range v.NumField() {
		if !v.Type().Field(i).IsExported() {
			continue
		}
		switch f := v.Field(i).Interface().(type) {
		case interface{ reads() any }:
			reads = append(reads, f.reads())
		case interface{ writes() any }:
			writes = append(writes, f.writes())
		}
	}
	return reads, writes
}
