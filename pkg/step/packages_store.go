package step

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// storeDir is where a host has packages of the store while it installs them. It is
// nobody's but kubexm's, so that the ledger need not know of it.
const storeDir = runner.StateDir + "/packages"

// clearStore removes it, with the checksums that are noted of what was uploaded there.
const clearStore = "rm -rf " + storeDir + " " + runner.StateDir + "/sums" + storeDir

// storeOptions let the package manager see the packages of the store, and no repository of the
// host: these are neither read nor changed.
func (p Packages) storeOptions() string {
	if p.Manager == "apt" {
		return " -c " + storeDir + "/apt.conf"
	}
	return " --setopt=reposdir=" + storeDir + "/repos --setopt=cachedir=" + storeDir + "/cache --disableplugin=subscription-manager"
}

// keptStore is where a host keeps packages of the store that it may want again: see runner.Restore.
const keptStore = runner.StateDir + "/lost"

// bring lays on the host the index of what the store has, lets the package manager tell what it would
// take of it, and brings just that: each package crosses once, checked on both sides. What
// would have to make room comes along, too, and is kept.
func (p Packages) bring(ctx context.Context, r *runner.Runner, script string) (err error) {
	defer func() {
		if err != nil { // else the installation itself removes it
			err = errors.Join(err, clearHost(ctx, r))
		}
	}()
	out, err := p.lay(ctx, r, script)
	if err != nil {
		return err
	}
	names := map[string][]string{storeDir: strings.Fields(out)}
	if p.Manager == "apt" {
		names = map[string][]string{storeDir: planned("Inst", out), keptStore: planned("Remv", out)}
		if err := p.wayBack(out); err != nil {
			return err
		}
	}
	var all []placed
	for _, dir := range slices.Sorted(maps.Keys(names)) {
		members, err := p.From.Files(names[dir])
		if err != nil {
			return err
		}
		for _, m := range members {
			all = append(all, placed{File: m, to: path.Join(dir, m.Name)})
		}
	}
	if all == nil {
		return nil
	}
	return send(ctx, r, all)
}

// lay does the first half of that, and returns what would be taken: lines of apt-get -s, or names.
func (p Packages) lay(ctx context.Context, r *runner.Runner, script string) (string, error) {
	index, err := p.From.Index(storeDir)
	if err != nil {
		return "", err
	}
	var files []runner.File
	for _, name := range slices.Sorted(maps.Keys(index)) {
		files = append(files, runner.File{Path: path.Join(storeDir, name), Data: index[name], Mode: 0o644})
	}
	refresh := "refresh >&2"
	if p.Manager != "apt" { // it refreshes by itself
		refresh = ":"
	}
	return r.ChangeWith(ctx, script, clearStore+"\nfiles\nmkdir -p "+storeDir+"/lists/partial "+storeDir+"/cache/archives/partial\n"+
		refresh+"\nout=$(plan)\nprintf '%s\\n' \"$out\" | "+p.taken()+"\n", files...)
}

// taken reads what a plan would take, also in another version.
func (p Packages) taken() string {
	if p.Manager == "apt" {
		return "apt_plan"
	}
	return "dnf_plan y"
}

// clearHost removes from a host what lay and bring have laid there, also when the run is to stop.
func clearHost(ctx context.Context, r *runner.Runner) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, err := r.Sh(ctx, clearStore)
	return err
}

// wayBack refuses a plan of apt that removes what could not be installed again without a network. In the version that
// the host has, a package of the store finds there what it needs; of another version nothing is known.
func (p Packages) wayBack(plan string) error {
	var gone []string
	for line := range strings.Lines(plan) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "Remv" {
			continue
		}
		version := ""
		if len(f) > 2 {
			version = strings.Trim(f[2], "[]")
		}
		has, err := p.From.Has(f[1], version)
		if err != nil {
			return err
		}
		if !has {
			gone = append(gone, f[1]+" "+version)
		}
	}
	if gone == nil {
		return nil
	}
	return fault.Advise(fmt.Errorf("%s would be removed, and the store does not have that version: 'delete cluster' could not install it again", human.Names(gone, 5)),
		"install "+strings.Join(p.Names, " ")+" on the host by hand, or import the version that it has: 'kubexm download --refresh --os "+p.From.System+
			" --export' on a machine with internet, then 'kubexm import', and update the host to that")
}

// planned returns the packages that apt-get -s has under a word.
func planned(word, out string) (names []string) {
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == word {
			names = append(names, f[1])
		}
	}
	return names
}

// FetchPackages ensures that packages of an operating system are in the store of the control machine.
type FetchPackages struct {
	Set   resource.PackageSet
	Store *resource.Store
}

func (f FetchPackages) String() string { return "download " + f.Set.String() }

// Precheck looks into the store; it asks no server.
func (f FetchPackages) Precheck(context.Context, *runner.Runner) (*Change, error) {
	if has, err := f.Store.HasPackages(f.Set); err != nil || has {
		return nil, err
	}
	return &Change{Diff: "+ " + f.Set.String(), Run: func(ctx context.Context) error {
		return f.Store.FetchPackages(ctx, f.Set, Progress(ctx))
	}}, nil
}
