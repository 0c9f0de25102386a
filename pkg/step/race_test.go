//go:build race

package step_test

func init() { raceDetector = true }
