package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// findBack looks at hosts that are in the configuration again after they were to leave, or were given up. Of those that leave, it takes away the ones that still
// run all that they ran: these stay. And it adds the ones that were given up and are back uncleaned.
func (w *work) findBack(ctx context.Context, left map[string]store.Departed) error {
	known, err := w.records.Facts()
	if err != nil {
		return err
	}
	back := map[string]store.Departed{}
	for _, h := range w.config.Spec.Hosts {
		if d, leaves := left[h.Name]; leaves && !d.Lost {
			back[h.Name] = d
		} else if d := givenUp(left, h.Name); d != nil && known[h.Name] == nil {
			back[h.Name] = *d
		}
	}
	if len(back) == 0 {
		return nil
	}
	fleet, _ := w.dialAll(ctx) // who does not answer is told later
	defer fleet.hangUp()
	facts, _ := fleet.gather(ctx)
	c := cluster.New(w.config, w.dir, nil, facts)
	for name, d := range back {
		switch {
		case d.Lost && w.uncleaned(name, left, nil, facts[name]):
			d.Lost = false
			left[name] = d
		case !d.Lost && !d.Gone && c.IsTouched(name) && c.Whole(name) && !w.uncleaned(name, left, nil, facts[name]):
			was, _, err := config.ParseRecorded("configuration that had "+name, d.Given)
			if err != nil {
				return err
			}
			if sameHost(hostIn(was, name), hostIn(w.config, name)) {
				delete(left, name)
			}
		}
	}
	return nil
}

// sameHost reports whether a host is for others what it was.
func sameHost(was, is *v1alpha1.Host) bool {
	return was != nil && slices.Equal(was.Roles, is.Roles) && was.InternalAddress == is.InternalAddress
}

// uncleaned reports whether the machine of a host was given up, and is back with all that it had. known is how the host was last seen since.
func (w *work) uncleaned(host string, left map[string]store.Departed, known, is *runner.Facts) bool {
	if is == nil || is.Env["cluster"] != w.config.Metadata.Name || known != nil && known.MachineID == is.MachineID {
		return false
	}
	for note, d := range left {
		if name, _, _ := strings.Cut(note, " "); name == host && d.Lost && (d.MachineID == is.MachineID || d.MachineID == "") {
			return true
		}
	}
	return false
}

// checkCleaned refuses machines that were given up and are back uncleaned: etcd and the API do not know them any more, and they do not know.
func (w *work) checkCleaned(left map[string]store.Departed, facts map[string]*runner.Facts) error {
	for _, h := range w.config.Spec.Hosts {
		if w.uncleaned(h.Name, left, w.known[h.Name], facts[h.Name]) {
			err := fmt.Errorf("host %s was given up and is not cleaned", h.Name)
			return fault.Exit(fault.Advise(err, "clean it first: kubexm delete node "+h.Name+w.Which()+"; then add it again"), fault.ExitPreflight)
		}
	}
	return nil
}

// checkBack refuses to create a cluster with hosts that were to leave it: they may have begun to.
func (w *work) checkBack() error {
	left, err := w.records.Departed()
	for _, h := range w.config.Spec.Hosts {
		if d, leaves := left[h.Name]; leaves && !d.Lost && err == nil {
			err = fault.Advise(errors.New("host "+h.Name+" was to leave the cluster, and is in the configuration again"), "kubexm apply"+w.Which())
			err = fault.Exit(err, fault.ExitUsage)
		}
	}
	return err
}
