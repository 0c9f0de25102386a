// Package e2e makes real clusters on machines of the testbed, with the program
// that is built from the tree and with nothing but its command line, and lets
// them suffer what real clusters do. Run it with make e2e, as root.
//
// Environment:
//
//	E2E_SEED=N  repeats the random moments of an earlier run, which printed N
//	E2E_FAMILY  addresses of machines and clusters: ipv4 (default), dual or ipv6
//	E2E_KEEP=1  leaves machines and directories as they are when a test fails
package e2e
