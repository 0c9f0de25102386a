package cli

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/preflight"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// problem is one thing that failed, on one host or in the same way on several.
type problem struct {
	Hosts   []string `json:"hosts,omitempty"` // the texts are those of the first one
	What    string   `json:"what,omitempty"`  // the step that failed
	Error   string   `json:"error"`
	Command string   `json:"command,omitempty"`
	Output  string   `json:"output,omitempty"` // of the command
	Advice  string   `json:"advice,omitempty"` // the next move

	Findings []preflight.Finding `json:"findings,omitempty"` // of the preflight

	err error
}

// problems takes an error apart: one problem for each cause.
func problems(err error) []problem {
	var all []problem
	seen := map[string]int{}
	for _, one := range split(err, "") {
		key := one.key()
		if i, ok := seen[key]; ok {
			all[i].Hosts = append(all[i].Hosts, one.Hosts...)
			continue
		}
		if len(one.Hosts) > 0 {
			seen[key] = len(all)
		}
		all = append(all, one)
	}
	for i := range all { // a host can fail in the same way twice
		slices.SortFunc(all[i].Hosts[min(1, len(all[i].Hosts)):], func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
		all[i].Hosts = slices.Compact(all[i].Hosts)
	}
	return all
}

// split follows an error to where several were joined. The advice is that which
// was given for all of them.
func split(err error, advice string) []problem {
	if err == nil {
		return nil
	}
	var step *engine.Error
	var host *app.HostError
	switch e := err.(type) { //nolint:errorlint // it is the tree that is looked at
	case *engine.Error:
		step = e
	case *app.HostError:
		host = e
	case interface{ Unwrap() []error }:
		if joined(err, e.Unwrap()) {
			var all []problem
			for _, in := range e.Unwrap() {
				all = append(all, split(in, advice)...)
			}
			return all
		}
	case interface{ Unwrap() error }:
		if in := e.Unwrap(); in != nil && in.Error() == err.Error() { // adds no words: advice, exit code
			return split(in, cmp.Or(fault.Advice(err), advice))
		}
	}
	one := problem{Error: err.Error(), Advice: cmp.Or(fault.Advice(err), advice), err: err}
	if step != nil {
		one.Hosts, one.What, one.Error = []string{step.Host}, step.What, step.Err.Error()
	}
	if host != nil {
		one.Hosts, one.Error = []string{host.Host}, host.Err.Error()
	}
	if unfit, ok := errors.AsType[*preflight.Error](err); ok {
		one.Error = unfit.Title()
		one.Findings = unfit.Findings
	}
	if exit, ok := errors.AsType[*connector.ExitError](err); ok {
		one.Error = strings.Replace(one.Error, exit.Error(), fmt.Sprintf("the command exited with status %d", exit.Code), 1)
		one.Command, one.Output = exit.Line, exit.Stderr
	}
	return []problem{one}
}

// joined reports whether err is nothing but the errors in it.
func joined(err error, in []error) bool {
	texts := make([]string, len(in))
	for i, e := range in {
		texts[i] = e.Error()
	}
	return err.Error() == strings.Join(texts, "\n")
}

var address = regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b`)

// key is the same for problems that only differ in their host.
func (p *problem) key() string {
	text := address.ReplaceAllString(strings.Join([]string{p.What, p.Error, p.Command, p.Output}, "\x00"), "ADDRESS")
	for _, h := range p.Hosts {
		text = strings.ReplaceAll(text, h, "HOST")
	}
	return text
}
