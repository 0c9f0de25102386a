// Package resource knows what kubexm fetches (programs, container images and packages of operating systems),
// where it comes from and what it must hash to, and keeps it in one store on
// the control machine:
//
//	packages/lock.json                            checksums (with signatures) and digests first seen; share it for equal results
//	packages/<component>/<version>/<arch>/<file>  a file as published, and next to it its unpacked members
//	packages/<component>/<version>/<arch>/SHA256SUMS
//	packages/images/                              one OCI layout for all images and architectures
//	packages/os/<system>/<arch>/                  a repository of apt or dnf
//
// A bundle carries a part of one store to another.
// What is in the store is never fetched again, and nothing enters it unverified.
// Any number of goroutines and processes may use one store at a time.
package resource
