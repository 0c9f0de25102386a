package distro

import "strings"

// Package is what a package says of itself.
type Package struct {
	Name     string
	Version  string   // of a Debian package, as apt tells it
	Provides []string // further names that it answers to

	control string      // what the index says of a Debian package, but for where it is
	rpm     *xmlPackage // what it says of an RPM package
}

// Entry is a package in the index of a repository, with the file that it is in.
type Entry struct {
	File
	Package Package
}

// Read reads a package from a file, whose name ends in .deb or .rpm.
func Read(file string) (Package, error) {
	if strings.HasSuffix(file, ".deb") {
		return readDeb(file)
	}
	return readRPM(file)
}

// Index returns the small files that make a repository of a directory of a host, by their paths
// below it: those that list the packages, whose files are in the directory itself, and those that lead a package manager
// there and nowhere else. The same packages give the same bytes.
func (s System) Index(dir string, all []Entry) (map[string][]byte, error) {
	if s.Manager == "apt" {
		return debIndex(dir, all), nil
	}
	return rpmIndex(dir, all)
}
