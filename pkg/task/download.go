package task

import (
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/step"
)

const downloadTimeout = 2 * time.Hour

// Download fetches everything that clusters need into their one store, several
// things at a time, what they share once.
func Download(clusters ...*cluster.Cluster) plan.Part {
	return download(clusters[0].Store, cluster.Needs(clusters...))
}

// DownloadAll fetches what may be needed later, too.
func DownloadAll(clusters ...*cluster.Cluster) plan.Part {
	return download(clusters[0].Store, cluster.AllNeeds(clusters...))
}

func download(s *resource.Store, items []resource.Item) plan.Part {
	var all plan.Parallel
	for _, item := range items {
		all = append(all, onStore("download", fetch(s, item)))
	}
	return all
}

func fetch(s *resource.Store, item resource.Item) step.Step {
	if item.Image != "" {
		return step.Pull{Image: item.Image, Arch: item.Arch, Store: s}
	}
	return step.Fetch{Artifact: item.Artifact, Store: s}
}

// FetchPackages fetches packages of operating systems.
func FetchPackages(s *resource.Store, sets []resource.PackageSet) plan.Part {
	var all plan.Parallel
	for _, set := range sets {
		all = append(all, onStore("download", step.FetchPackages{Set: set, Store: s}))
	}
	return all
}

// Pack writes a bundle of the store; done is told its files.
func Pack(s *resource.Store, b resource.Bundle, done func([]resource.Volume)) plan.Part {
	return onStore("bundle", step.Pack{Bundle: b, Store: s, Done: done})
}

// Import takes a bundle into the store, where keys are given one that is signed with one of
// them; done is told what was in it.
func Import(s *resource.Store, file string, keys []string, done func(resource.Imported)) plan.Part {
	return onStore("import", step.Import{File: file, Keys: keys, Store: s, Done: done})
}

// onStore is a task of one long step on the control machine.
func onStore(name string, s step.Step) plan.Part {
	return on(name, []string{plan.Control}, func(string) []step.Step {
		return []step.Step{step.With(s, step.Options{Timeout: downloadTimeout, Retries: -1})} // the store itself tries again
	})
}
