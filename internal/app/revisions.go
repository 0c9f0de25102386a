package app

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/util/diff"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Revision is a configuration that was applied.
type Revision struct {
	Run      string    `json:"run"`
	Pipeline string    `json:"pipeline"`
	Started  time.Time `json:"started"`
	Result   string    `json:"result"`            // of the run
	Changed  []string  `json:"changed,omitempty"` // field: old -> new, against the one before
}

// History lists the configurations that were applied to a cluster, oldest first.
func (a *App) History(r Request) ([]Revision, error) {
	p, err := a.use(r, Observer{}).history()
	if err != nil {
		return nil, err
	}
	defer p.Close()
	runs, err := p.runs()
	if err != nil {
		return nil, err
	}
	results := map[int64]string{}
	for _, r := range runs {
		results[r.Seq] = r.Result
	}
	revs, err := p.Store.History()
	var all []Revision
	for i, r := range revs {
		one := Revision{Run: r.Run.ID, Pipeline: r.Run.Pipeline, Started: r.Run.Started, Result: results[r.Run.Seq]}
		if i > 0 && err == nil {
			one.Changed, err = differing(revs[i-1].Resolved, r.Resolved)
		}
		all = append(all, one)
	}
	return all, err
}

// differing lists the fields that differ between two configurations; what one of them was may be lost.
func differing(was, is []byte) (all []string, err error) {
	if len(was) == 0 || len(is) == 0 {
		return nil, nil
	}
	changes, err := config.Changes(was, is)
	for _, c := range changes {
		all = append(all, c.String())
	}
	return all, err
}

// Diff returns how the configuration that a run applied, by default the last one that did, differs from that of
// another run, or where to is empty from the one of now. Defaults are filled in. Secrets and the contents of files
// are told by keyed digests.
func (a *App) Diff(ctx context.Context, r Request, o Observer, from, to string) (string, error) {
	p, err := a.use(r, o).history()
	if err != nil {
		return "", err
	}
	defer p.Close()
	was, err := p.revision(from)
	if err != nil {
		return "", err
	}
	if to != "" {
		is, err := p.revision(to)
		return unified(was.Run.ID, to, was.Resolved, is.Resolved), err
	}
	s, err := a.open(ctx, r, o)
	if err != nil {
		return "", err
	}
	is, err := s.resolved(false)
	return unified(was.Run.ID, s.file, was.Resolved, is), err
}

// unified is the difference of two texts that have names of their own.
func unified(from, to string, was, is []byte) string {
	const name = "configuration"
	text := diff.Unified(name, string(was), string(is))
	return strings.Replace(text, "--- "+name+"\n+++ "+name+"\n", "--- "+from+"\n+++ "+to+"\n", 1)
}

// revision finds the configuration that a run applied, by default the last one.
func (p *records) revision(id string) (store.Revision, error) {
	all, err := p.Store.History()
	if err != nil {
		return store.Revision{}, err
	}
	if len(all) == 0 {
		return store.Revision{}, p.noCluster(p.name)
	}
	if id == "" {
		return all[len(all)-1], nil
	}
	i := slices.IndexFunc(all, func(r store.Revision) bool { return r.Run.ID == id })
	if i >= 0 {
		return all[i], nil
	}
	if _, err := p.run(id); err != nil {
		return store.Revision{}, err
	}
	err = fmt.Errorf("run %s applied no configuration", id)
	return store.Revision{}, fault.Exit(fault.Advise(err, "list those that did with: kubexm config history"+p.Which()), fault.ExitUsage)
}

// earlier is the configuration that Revision applied. It is to be written to the file that the cluster has now.
func (u *use) earlier() (document, error) {
	p, err := u.history()
	if err != nil {
		return document{}, err
	}
	defer p.Close()
	was, err := p.revision(u.Revision)
	if err != nil {
		return document{}, err
	}
	if len(was.Given) == 0 {
		err := fmt.Errorf("the text of the configuration that run %s applied was not kept: it held secrets in plain text, or an older version of kubexm did not record it", was.Run.ID)
		return document{}, fault.Exit(fault.Advise(err, "see what differs with: kubexm config diff"+u.Which()+" "+was.Run.ID+"; edit the file, and apply it"), fault.ExitUsage)
	}
	now := u.app.use(Request{Name: u.Name, File: u.File}, Observer{})
	is, err := now.document()
	d := document{file: "configuration of " + was.Run.ID, given: was.Given}
	if _, err := os.Stat(is.file); err == nil { // else the cluster has no file: what is applied is in the records
		d.back = is.file
	}
	return d, err
}

// writeBack gives the file of the cluster the text of the revision that it goes back to. What was there is kept beside it.
func (s *session) writeBack() error {
	file := s.back
	if file == "" {
		return nil
	}
	if at, err := filepath.EvalSymlinks(file); err == nil {
		file = at // links stay
	}
	text := s.given
	if s.final != nil {
		text = s.final
	}
	was, err := os.ReadFile(file)
	if err == nil && bytes.Equal(was, text) {
		return nil
	}
	if err == nil && (s.Edit != nil || s.found != nil) { // which is the user's own, and small
		if s.found != nil && !bytes.Equal(was, s.found) {
			return fault.Advise(fmt.Errorf("%s has changed meanwhile", s.back), "nothing is overwritten: run the same command again")
		}
		if err = durable.Write(file, text); err != nil {
			return fmt.Errorf("writing the configuration: %w", err)
		}
		s.notice("%s is updated", s.back)
		return nil
	}
	kept := file + "." + time.Now().UTC().Format("20060102T150405.000Z")
	if err == nil {
		err = durable.Write(kept, was)
	}
	if err == nil {
		err = durable.Write(file, text)
	}
	if err != nil {
		return fmt.Errorf("going back to the configuration of %s: %w", s.Revision, err)
	}
	s.notice("%s is the configuration of %s again; the previous file is saved as %s", s.back, s.Revision, kept)
	return nil
}
