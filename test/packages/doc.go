// Package packages proves, without a cluster, that hosts without a network get packages of their
// operating system from the store: on systems of their own, with the package managers that there are.
//
//	make e2e-packages
//
// It needs root, mmdebstrap and a way to Debian's packages; for RPM packages also dnf, dnf-plugins-core,
// createrepo-c and rpm. What is missing is said, and skips.
package packages
