package app

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// contentKey is the key of the digests in recorded configurations.
const contentKey = "content.key"

// resolved is the configuration of now as it is recorded: with all defaults, so that what another kubexm takes for a
// default is no change. Where the key is lost, what was recorded with it cannot be
// told apart from what is there now: only a record makes a new one.
func (s *session) resolved(record bool) ([]byte, error) {
	path := filepath.Join(s.dir, contentKey)
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(key) == 0 {
		if key, err = nil, nil; record {
			key = []byte(rand.Text())
			err = durable.Write(path, key)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the key of the recorded configuration: %w", err)
	}
	return config.Resolved(s.config, key)
}

// configs are the configuration that the cluster was last made with and the one of now. The first is nil where
// there is none, or none any more: a power cut may have taken it from an older version.
func (w *work) configs() (was, is []byte, err error) {
	applied, err := w.records.Applied()
	if err != nil || applied == nil || len(applied.Resolved) == 0 {
		return nil, nil, err
	}
	is, err = w.resolved(false)
	return applied.Resolved, is, err
}

// changes compares the configuration with the one that the cluster was last made with; nil where there is none.
// Hosts that are gone and that no run came to are no change.
func (w *work) changes() ([]config.Change, error) {
	was, is, err := w.configs()
	if was == nil || err != nil {
		return nil, err
	}
	all, err := config.Changes(was, is)
	if err != nil || !slices.ContainsFunc(all, config.Change.Gone) {
		return all, err
	}
	reached, err := w.records.touched()
	return slices.DeleteFunc(all, func(c config.Change) bool {
		_, known := reached[c.Host]
		return c.Gone() && len(reached) > 0 && !known
	}), err
}

// refused are changes that a cluster which is begun cannot follow in one run.
func refused(c config.Change) bool {
	return c.Policy.Way == config.Refuse || c.Policy.Way == config.Rejoin
}

// impossible are changes that a run of a pipeline cannot make.
func impossible(pipe string) func(config.Change) bool {
	if pipe == "apply" {
		return refused
	}
	return unready
}

// unready are changes that only an apply brings about, and no run that creates a cluster.
func unready(c config.Change) bool {
	return refused(c) || strings.HasSuffix(c.Field, ".internalAddress")
}

// erased are changes of what deleting the cluster empties.
func erased(c config.Change) bool { return c.Policy.Erased }

// checkUnchanged reports all changes that are not possible, each with the reason and the way out.
func (w *work) checkUnchanged(impossible func(config.Change) bool) error {
	all, err := w.changes()
	if err != nil {
		return err
	}
	var lines []string
	for _, c := range all {
		if !impossible(c) {
			continue
		}
		line := c.String()
		if unready(c) && c.Policy.Way != config.Refuse {
			c.Policy.Why, c.Policy.WayOut = "what knows the host must follow one after the other", "kubexm apply"+w.Which()+", once the cluster runs"
		}
		if unready(c) {
			line += fmt.Sprintf("\n    why: %s\n    instead: %s", c.Policy.Why, c.Policy.WayOut)
		}
		lines = append(lines, line)
	}
	if lines == nil {
		return nil
	}
	err = fmt.Errorf("the configuration changes fields that cannot change once the cluster exists:\n  %s", joinLines(lines))
	return fault.Exit(fault.Advise(err, "put the old values back (kubexm config diff"+w.Which()+" shows them), or delete the cluster first"), fault.ExitUsage)
}

// sameConfig refuses to resume with another configuration than the one begun with; how kubexm works, and gets to the
// hosts, may be another.
func (w *work) sameConfig() error {
	lines, err := w.unapplied()
	if lines == nil || err != nil {
		return err
	}
	err = fmt.Errorf("the configuration changed since the run that is to be resumed:\n  %s", joinLines(lines))
	return fault.Exit(fault.Advise(err, "run the same command without --resume to go on with the new configuration, or put the old one back"), fault.ExitUsage)
}

// unapplied are the changes of the configuration that machines are to follow, and have not.
func (w *work) unapplied() (lines []string, err error) {
	all, err := w.changes()
	for _, c := range all {
		if c.Policy.Way != config.None {
			lines = append(lines, c.String())
		}
	}
	return lines, err
}
