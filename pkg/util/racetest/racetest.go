// Package racetest lets tests do less with the race detector, with which all takes five times as long.
package racetest

import "testing"

// Slow skips a test with the race detector. It is for tests whose goroutines others run there, too; what it finds it finds
// without.
func Slow(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("slow with the race detector, for which other tests take the same ways; make test runs it without")
	}
}

// Few is the first of some cases with the race detector, and all without.
func Few[T any](cases ...T) []T {
	if Enabled {
		return cases[:1]
	}
	return cases
}
