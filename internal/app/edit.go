package app

import (
	"cmp"
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
	"github.com/kubexm/kubexm/pkg/util/fault"
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
	if inFile && !u.KeepFile {
		d.back = d.file
	}
	return d, nil
}

// remaining is what of an edit is not made yet.
func remaining(e config.Edit, conf *v1alpha1.Cluster, left map[string]store.Departed) config.Edit {
	find := func(name string) *v1alpha1.Host {
		i := slices.IndexFunc(conf.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == name })
		if i < 0 {
			return nil
		}
		return &conf.Spec.Hosts[i]
	}
	e.Move = maps.Clone(e.Move)
	maps.DeleteFunc(e.Move, func(name string, to config.Addresses) bool {
		is := find(name)
		return is != nil && (to.Address == "" || to.Address == is.Address) && (to.Internal == "" || to.Internal == is.InternalAddress)
	})
	e.Add = slices.DeleteFunc(slices.Clone(e.Add), func(h v1alpha1.Host) bool { is := find(h.Name); return is != nil && says(*is, h) })
	e.Remove = slices.DeleteFunc(slices.Clone(e.Remove), func(name string) bool { _, leaves := left[name]; return find(name) == nil && leaves })
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

// ReplaceNode lets a machine take the place of a host: a fresh one that of a machine which is gone for good, or the machine itself at another address. It
// leaves the cluster as it was, if it is there, and joins it as it is to be; so any host can move, one after the other, as long as
// the others do without it.
func (a *App) ReplaceNode(ctx context.Context, r Request, o Observer, host string, to config.Addresses) (*Result, error) {
	r.Replace, r.Resume = []string{host}, false // it looks what is left to do
	if to == (config.Addresses{}) {
		return a.Apply(ctx, r, o, nil)
	}
	_, conf, err := a.Config(r, Observer{})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(conf.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == host })
	stays := i >= 0 && (to.Internal == "" && conf.Spec.Hosts[i].InternalAddress != conf.Spec.Hosts[i].Address || conf.Spec.Hosts[i].InternalAddress == cmp.Or(to.Internal, to.Address))
	move := r
	move.Edit = &config.Edit{Move: map[string]config.Addresses{host: to}}
	if i < 0 || stays { // what is wrong with it is told by the edit
		return a.Apply(ctx, move, o, nil)
	}
	leave := r
	leave.Edit, leave.KeepFile, leave.Replace = &config.Edit{Remove: r.Replace}, true, nil
	leave.At = map[string]string{host: cmp.Or(to.Address, conf.Spec.Hosts[i].Address)}
	if res, err := a.Apply(ctx, leave, o, nil); err != nil || r.DryRun {
		return res, err
	}
	move.Replace = nil
	return a.Apply(ctx, move, o, nil)
}
