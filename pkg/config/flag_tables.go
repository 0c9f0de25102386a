package config

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// flagTables say which flags programs take: a file for each program and minor version, written by hack/flags.sh, of lines
// "PROGRAM FLAG TYPE", and for each minor version of Kubernetes its feature gates, of which some are marked as unlisted, and its admission plugins.
//
//go:embed flags/*.txt
var flagTables embed.FS

// tables has the lines of each file as a map from the word that names something to its type.
var tables = sync.OnceValue(func() map[string]map[string]string {
	all := map[string]map[string]string{}
	files, _ := flagTables.ReadDir("flags")
	for _, f := range files {
		text, _ := flagTables.ReadFile("flags/" + f.Name())
		table := map[string]string{}
		for line := range strings.Lines(string(text)) {
			if w := strings.Fields(line); len(w) == 3 {
				table[w[1]] = w[2]
			} else {
				table[w[0]] = strings.Join(w[1:], "")
			}
		}
		all[strings.TrimSuffix(f.Name(), ".txt")] = table
	}
	return all
})

// table is what is known of a program of a version; exact is false where that is of another minor version.
func table(program, version string) (is map[string]string, exact bool) {
	exactly := program + "-" + minorOf(version)
	if is = tables()[exactly]; is != nil {
		return is, true
	}
	for _, name := range slices.Sorted(maps.Keys(tables())) {
		if strings.HasPrefix(name, program+"-") {
			is = tables()[name] // the newest
		}
	}
	return is, false
}

// minorOf is 1.37 of v1.37.2.
func minorOf(v string) string {
	is, err := version.ParseGeneric(v)
	if err != nil {
		return v
	}
	return fmt.Sprintf("%d.%d", is.Major(), is.Minor())
}

// checkFlag refuses a flag that the program does not take, or not with that value. Of a version whose flags are not known it only warns.
func (k *checker) checkFlag(at, program, version, flag, value string) {
	known, exact := table(program, version)
	kind, found := known[flag]
	switch {
	case !found && exact:
		k.lately(Error{Path: at, Msg: fmt.Sprintf("%s %s has no such flag, and would not start", program, minorOf(version)), Suggestion: Nearest(flag, slices.Sorted(maps.Keys(known)))})
	case !found:
		k.warn(at, value, "%s may have no such flag, and then does not start; kubexm does not know the flags of its version %s", program, minorOf(version))
	case !isOf[kind](value) && exact:
		k.lately(Error{Path: at, Value: value, Msg: fmt.Sprintf("%s takes %s here, and would not start", program, kinds[kind])})
	}
}

// kinds names the types of flags, and isOf tells whether a value has one.
var (
	kinds = map[string]string{"bool": "true or false", "int": "a whole number", "uint": "a whole number from 0 on", "float": "a number", "duration": "a duration, like 90s or 10m"}
	isOf  = map[string]func(string) bool{
		"bool": parses(strconv.ParseBool), "duration": parses(time.ParseDuration), "text": func(string) bool { return true },
		"int":   parses(func(s string) (int64, error) { return strconv.ParseInt(s, 0, 64) }),
		"uint":  parses(func(s string) (uint64, error) { return strconv.ParseUint(s, 0, 64) }),
		"float": parses(func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }),
	}
)

func parses[T any](parse func(string) (T, error)) func(string) bool {
	return func(s string) bool { _, err := parse(s); return err == nil }
}

// checkFeatureGates refuses gates that there are not: programs would not start. Those that are not listed any more do nothing.
func (k *checker) checkFeatureGates() {
	known, exact := table("gates", k.Kubernetes.Version)
	for _, gate := range slices.Sorted(maps.Keys(k.Kubernetes.FeatureGates)) {
		at := fmt.Sprintf("spec.kubernetes.featureGates[%s]", gate)
		kind, found := known[gate]
		switch {
		case !featureGate.MatchString(gate):
			k.fail(at, gate, "is not the name of a feature gate")
		case !found:
			k.unknown(at, "", "gate", gate, known, exact)
		case kind == "unlisted" && exact:
			k.warn(at, "", "Kubernetes %s does not list this gate any more, as those that have become GA; leave it out", minorOf(k.Kubernetes.Version))
		}
	}
}

// checkAdmission refuses admission plugins that there are not.
func (k *checker) checkAdmission() {
	known, exact := table("admission", k.Kubernetes.Version)
	args := k.Kubernetes.APIServer.ExtraArgs
	for _, flag := range slices.Sorted(maps.Keys(args)) {
		if !slices.Contains([]string{"enable-admission-plugins", "disable-admission-plugins", "admission-control"}, Dashed(flag)) || args[flag] == "" {
			continue
		}
		for name := range strings.SplitSeq(args[flag], ",") {
			if _, found := known[name]; !found {
				k.unknown(fmt.Sprintf("spec.kubernetes.apiServer.extraArgs[%s]", flag), name, "admission plugin", name, known, exact)
			}
		}
	}
}

// unknown refuses a name that Kubernetes does not know, as its programs would not start. Of a version whose names are not known it only warns.
func (k *checker) unknown(at, value, what, name string, known map[string]string, exact bool) {
	if !exact {
		k.warn(at, value, "may be no %s of Kubernetes %s, which keeps programs from starting; kubexm does not know those of that version", what, minorOf(k.Kubernetes.Version))
		return
	}
	k.lately(Error{Path: at, Value: value, Msg: fmt.Sprintf("Kubernetes %s has no such %s, and would not start", minorOf(k.Kubernetes.Version), what), Suggestion: Nearest(name, slices.Sorted(maps.Keys(known)))})
}
