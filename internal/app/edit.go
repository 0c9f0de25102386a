package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// edited makes the edit that is asked for in the text of a configuration. What of it an earlier run has made, which was cut off, is left out.
func (u *use) edited(d document) (document, error) {
	if d.file == "standard input" {
		err := errors.New("a configuration from standard input cannot be edited")
		return d, fault.Exit(fault.Advise(err, "give the file with -f FILE, or --name NAME"), fault.ExitUsage)
	}
	text, inFile := d.given, d.given == nil
	var conf *v1alpha1.Cluster
	var err error
	if inFile {
		if text, err = os.ReadFile(d.file); err != nil {
			_, _, err = config.Load(d.file) // which says more
			return d, err
		}
		conf, _, err = config.Parse(d.file, text)
	} else {
		conf, _, err = config.ParseRecorded(d.file, text)
	}
	if err != nil {
		return d, err
	}
	left, err := u.departed(conf.Metadata.Name)
	if err != nil {
		return d, err
	}
	if d.given, err = remaining(*u.Edit, conf, left).Apply(text); err != nil {
		return d, fault.Exit(fmt.Errorf("editing %s: %w", d.file, err), fault.ExitUsage)
	}
	if bytes.Equal(d.given, text) {
		u.notice("%s has that already; going on as kubexm apply does", d.file)
	}
	if inFile {
		d.back, d.found = d.file, text
	}
	return d, nil
}

// remaining is what of an edit is not made yet.
func remaining(e config.Edit, conf *v1alpha1.Cluster, left map[string]store.Departed) config.Edit {
	find := func(name string) *v1alpha1.Host { return hostIn(conf, name) }
	e.Move = maps.Clone(e.Move)
	maps.DeleteFunc(e.Move, func(name string, to config.Addresses) bool {
		is := find(name)
		return is != nil && (to.Address == "" || to.Address == is.Address) && (to.Internal == "" || to.Internal == is.InternalAddress)
	})
	e.Add = slices.DeleteFunc(slices.Clone(e.Add), func(h v1alpha1.Host) bool { is := find(h.Name); return is != nil && says(*is, h) })
	e.Remove = slices.DeleteFunc(slices.Clone(e.Remove), func(name string) bool {
		_, leaves := left[name]
		return find(name) == nil && (leaves || givenUp(left, name) != nil)
	})
	return e
}

// says reports whether a host of a configuration has all that is wanted of it.
func says(is, wanted v1alpha1.Host) bool {
	for _, r := range wanted.Roles {
		if !is.Is(r) {
			return false
		}
	}
	if len(is.Roles) != len(wanted.Roles) {
		return false
	}
	wanted.Roles, is.Roles = nil, nil
	have, want := reflect.ValueOf(is), reflect.ValueOf(wanted)
	for i := range want.NumField() {
		if f := want.Field(i); !f.IsZero() && f.Kind() != reflect.Struct && !reflect.DeepEqual(f.Interface(), have.Field(i).Interface()) {
			return false
		}
	}
	return true
}

// departed are the hosts that have left a cluster, or are to, and are not cleaned.
func (u *use) departed(name string) (map[string]store.Departed, error) {
	records, err := u.app.openRecords(filepath.Join(u.app.Workdir, name), false, false)
	if missing(err) {
		return nil, nil //nolint:nilnil // there is no cluster
	}
	if err != nil {
		return nil, err
	}
	defer records.Close()
	return records.Departed()
}

// ReplaceNode lets a machine take the place of a host: a fresh one that of a machine which is gone for good, or the machine itself at another address.
func (a *App) ReplaceNode(ctx context.Context, r Request, o Observer, host string, to config.Addresses) (*Result, error) {
	r.Replace, r.Resume = []string{host}, false // it looks what is left to do
	if to != (config.Addresses{}) {
		r.Edit = &config.Edit{Move: map[string]config.Addresses{host: to}}
	}
	return a.Apply(ctx, r, o, nil)
}

// checkReplace refuses to replace a host that the configuration does not have.
func (w *work) checkReplace() error {
	var hosts []string
	for _, h := range w.config.Spec.Hosts {
		hosts = append(hosts, h.Name)
	}
	for _, name := range w.Replace {
		if slices.Contains(hosts, name) {
			continue
		}
		advice := "there are: " + human.Names(hosts, 20)
		if near := config.Nearest(name, hosts); near != "" {
			advice = "did you mean " + near + "?"
		}
		return fault.Exit(fault.Advise(fmt.Errorf("the configuration has no host %s", name), advice), fault.ExitUsage)
	}
	return nil
}

// forgetReplaced forgets the host keys of machines which others have taken the place of, that show other keys now. It reports whether there are any.
func (w *work) forgetReplaced(failed []*HostError) (forgotten bool, err error) {
	for _, h := range w.machines() {
		other := slices.ContainsFunc(failed, func(e *HostError) bool { return e.Host == h.Name && errors.Is(e.Err, connector.ErrHostKey) })
		if err == nil && other && slices.Contains(w.Replace, h.Name) {
			forgotten, err = true, w.forgetKey(h)
		}
	}
	return forgotten, err
}

// stillThere refuses to replace machines that are the same as before and part of the cluster, at the same address. What a run that did not end well has begun goes on.
func (w *work) stillThere(facts map[string]*runner.Facts) error {
	applied, err := w.records.Applied()
	if err != nil || applied == nil || applied.Run.Result != "ok" || w.Edit != nil || w.in != nil {
		return err
	}
	for _, h := range w.Replace {
		if w.ours(w.known[h], facts[h]) {
			err := fmt.Errorf("host %s is still the same machine; nothing to replace", h)
			return fault.Exit(fault.Advise(err, "to bring it to its configuration: kubexm apply"+w.Which()), fault.ExitPreflight)
		}
	}
	return nil
}
