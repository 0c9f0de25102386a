package plan

import (
	"fmt"
	"slices"

	"github.com/kubexm/kubexm/pkg/step"
)

// Late is a task whose steps follow from what the steps of all parts before it own on each host, as step.Owns
// tells.
type Late struct {
	Name  string
	Hosts []string
	Steps func(host string, owned []string) []step.Step
}

func (l Late) hosts(only hostFilter) []string { return Task{Hosts: l.Hosts}.hosts(only) }

func (l Late) build(b *builder, path string, only hostFilter, after []ID) []ID {
	owned := b.owned()
	return Task{Name: l.Name, Hosts: l.Hosts, Steps: func(h string) []step.Step { return l.Steps(h, owned[h]) }}.build(b, path, only, after)
}

// owned collects what the steps own on each host, sorted.
func (b *builder) owned() map[string][]string {
	all := map[string][]string{}
	for i := range b.g.Nodes {
		n := &b.g.Nodes[i]
		if n.Step == nil {
			continue
		}
		if _, list := n.Step.(step.Inventory); list {
			continue
		}
		keys, err := step.Owns(n.Step)
		if err != nil {
			b.errs = append(b.errs, fmt.Errorf("%s: %w", n.ID, err))
		}
		all[n.Host] = append(all[n.Host], keys...)
	}
	for h, keys := range all {
		slices.Sort(keys)
		all[h] = slices.Compact(keys)
	}
	return all
}

// completeInventories tells each list of what a host has, unless it was told, what all steps own there.
func (b *builder) completeInventories() {
	var owned map[string][]string
	for i := range b.g.Nodes {
		n := &b.g.Nodes[i]
		list, ok := n.Step.(step.Inventory)
		if !ok || list.Owns != nil {
			continue
		}
		if owned == nil {
			owned = b.owned()
		}
		list.Owns = owned[n.Host]
		n.Step = list
		b.describe(n)
	}
}
