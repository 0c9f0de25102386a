// Package distro knows Linux distributions: which systems a cluster can be made of and where their packages are
// published, how apt and dnf find out what packages depend on, what is in a Debian or RPM package, and what makes a
// repository of a folder of them. It keeps nothing: that is for the store, pkg/resource.
package distro
