//go:build !race

package racetest

// Enabled tells whether this program has the race detector.
const Enabled = false
