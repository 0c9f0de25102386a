package runner

import (
	"embed"
	"strings"
)

//go:embed scripts/*.sh
var scriptFiles embed.FS

// The scripts that hosts run, each a library of shell functions but for facts and restore, which do all by themselves.
// What they need is in the comment at their beginning; Go only adds the calls.
var (
	ledgerScript  = script("ledger")
	filesScript   = script("files")
	sumsScript    = script("sums")
	uploadScript  = script("upload")
	lookScript    = script("look")
	reachScript   = script("reach")
	factsScript   = script("facts")
	restoreScript = script("restore")
	lockScript    = script("lock")
)

// state is the input that most scripts have.
const state = "S=" + StateDir + "\n"

// script returns a script of this package.
func script(name string) string { return Script(scriptFiles, name) }

// Script returns the file scripts/NAME.sh without its comments and indentation, which no host needs.
func Script(files embed.FS, name string) string {
	text, err := files.ReadFile("scripts/" + name + ".sh")
	if err != nil {
		panic(err) // it is part of the program
	}
	var b strings.Builder
	for l := range strings.Lines(string(text)) {
		if code := strings.TrimLeft(l, "\t "); code != "\n" && code[0] != '#' {
			b.WriteString(code)
		}
	}
	return b.String()
}

// Inputs gives a script its inputs: names, each with its value.
func Inputs(pairs ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		b.WriteString(pairs[i] + "=" + Quote(pairs[i+1]) + "\n")
	}
	return b.String()
}
