// Package testbed makes small fleets of real Linux machines on one Linux
// machine: systemd containers with their own network, sshd, accounts and
// package sources, started in seconds, for kubexm to turn into clusters.
//
// A node is a root file system of Debian (made once, shared, with a writable
// layer per node) booted by systemd-nspawn in a network namespace of its own
// on a common bridge. It runs real systemd, real kubelets, real container
// runtimes. What it shares with the machine below, and with the other nodes,
// is the kernel: its modules, its clock, and all sysctls that are not of a
// network namespace.
//
// Machines with cgroup v1 controllers and machines with the unified hierarchy
// are both provided for; only v1 has been run.
package testbed
