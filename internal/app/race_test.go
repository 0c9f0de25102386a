//go:build race

package app_test

func init() { raceDetector = true }
