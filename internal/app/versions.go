package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// How long a run that changes versions waits for API servers that do not answer, which may be starting, and how often it asks them.
const (
	versionsWait  = 2 * time.Minute
	versionsPause = 2 * time.Second
)

// mayDiffer reports whether programs of the cluster may have other versions than they are to have: some run since the last one that brought all
// of it to its release, or that one, was for another release.
func (w *work) mayDiffer() (bool, error) {
	history, err := w.records.History()
	if err != nil {
		return false, err
	}
	is := config.ReleaseOf(&w.config.Spec)
	for _, r := range slices.Backward(history) {
		if len(r.Resolved) == 0 {
			continue
		}
		was, err := releaseOf(r)
		if err != nil || was != is {
			return err == nil, err
		}
		if r.Run.Result == "ok" && !r.Run.Partial && len(r.Run.Missing) == 0 {
			break
		}
	}
	return false, nil
}

// followable refuses to bring a cluster to a release without masters and members of etcd that could not follow it there in one step, once they are back.
func (s *site) followable(missing []string) error {
	if s.records == nil || !s.cluster.Lives() {
		return nil
	}
	to := cmp.Or(s.goal, config.ReleaseOf(&s.config.Spec))
	for _, name := range missing {
		h := s.cluster.Host(name)
		master, member := h.Is(v1alpha1.RoleMaster), h.Is(v1alpha1.RoleEtcd)
		if !master && !member {
			continue
		}
		has, last, err := s.releasesOf(name)
		if err != nil {
			return err
		}
		if !master {
			has.Kubernetes = to.Kubernetes
		}
		if !member {
			has.Etcd = to.Etcd
		}
		if last == to || len(config.Path(has, to)) < 2 {
			continue
		}
		err = fmt.Errorf("host %s is left out with %s: it could not come to %s in one step, once it is back", name, has, to)
		advice := fmt.Sprintf("bring it up, or take it off the cluster: kubexm delete node %s%s --force; or go no further without it than one minor version: %s", name, s.Which(), config.Path(has, to)[0])
		return fault.Exit(fault.Advise(err, advice), fault.ExitPreflight)
	}
	return nil
}

// releasesOf are the oldest release that the programs of a host may have, by the runs since the last one that ended well with it, and the one
// that was applied last.
func (w *work) releasesOf(host string) (oldest, last config.Release, err error) {
	history, err := w.records.History()
	for _, r := range slices.Backward(history) {
		if err != nil {
			break
		}
		if len(r.Resolved) == 0 {
			continue
		}
		var was config.Release
		was, err = releaseOf(r)
		last = cmp.Or(last, was)
		oldest = config.Release{Kubernetes: config.Older(oldest.Kubernetes, was.Kubernetes), Etcd: config.Older(oldest.Etcd, was.Etcd)}
		if r.Run.Result == "ok" && !slices.Contains(r.Run.Missing, host) {
			break
		}
	}
	return oldest, last, err
}

// versions makes sure that it is known what runs where versions change: what is not known would change like what has the right version, without a drain and in any
// order. A run that goes on with what has begun, or back, may be there to bring the API servers back: then the machines themselves are asked.
func (s *site) versions(ctx context.Context) error {
	if !s.cluster.Lives() || !s.cluster.Complete {
		return nil
	}
	differ, err := s.mayDiffer()
	if err != nil || !differ {
		return err
	}
	if err := s.awaitVersions(ctx); err != nil {
		return err
	}
	applied, err := s.records.Applied()
	if err != nil {
		return err
	}
	has, err := releaseOf(*applied)
	if err != nil {
		return err
	}
	is := s.cluster.Observed
	switch to := config.ReleaseOf(&s.config.Spec); {
	case is.Nodes != nil && (has == to || is.AnyAPI() != nil):
		return nil
	case has != to && config.Older(has.Kubernetes, to.Kubernetes) == has.Kubernetes:
		err := fmt.Errorf("no API server answers: what runs is not known, and nothing is brought from %s to %s", has, to)
		advice := fmt.Sprintf("see what is wrong: kubexm status%s; to repair the cluster, put the versions back that it has (%s), and: kubexm apply%s", s.Which(), has, s.Which())
		return fault.Exit(fault.Advise(err, advice), fault.ExitPreflight)
	}
	return s.askKubelets(ctx)
}

// awaitVersions looks again for a while until all API servers have told their versions.
func (s *site) awaitVersions(ctx context.Context) error {
	late := time.After(versionsWait)
	stop, ended := s.stop()
	defer ended()
	for told := false; ; told = true {
		silent := s.silent()
		if silent == nil {
			return nil
		}
		if !told {
			s.notice("waiting until it is known which versions run: no answer from the API server of %s", human.Names(silent, 10))
		}
		select {
		case <-stop:
			return fault.Exit(ErrStopped, fault.ExitInterrupted)
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return nil
		case <-time.After(versionsPause):
		}
		s.observe(ctx)
	}
}

// silent are the masters that run and whose API servers do not tell their versions, or all of them, where nodes are not known.
func (s *site) silent() (hosts []string) {
	_, live := s.cluster.SplitMasters()
	is := s.cluster.Observed
	for _, h := range live {
		told := slices.ContainsFunc(is.API, func(a cluster.APIServer) bool { return a.Host == h && a.Version != "" })
		if s.hosts[h] != nil && (!told || is.Nodes == nil) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// kubeletVersion prints the version of the kubelet that runs, or else of the one that is there.
const kubeletVersion = `p=$(systemctl show kubelet -p MainPID); f=/proc/${p#*=}/exe; [ -e "$f" ] || f=` + runner.BinDir + `/kubelet; "$f" --version`

// askKubelets notes the versions that nodes themselves tell, where no API server does.
func (s *site) askKubelets(ctx context.Context) error {
	_, live := s.cluster.SplitNodes(s.cluster.Nodes())
	nodes := map[string]cluster.Node{}
	var unknown []*HostError
	for _, e := range s.eachConnected(ctx, patience, func(ctx context.Context, r *runner.Runner) error {
		if !slices.Contains(live, r.Host) {
			return nil
		}
		out, err := r.Sh(ctx, kubeletVersion)
		version := human.Line(strings.TrimPrefix(out, "Kubernetes "))
		if err == nil && config.Minor(version) == 0 {
			err = fmt.Errorf("its kubelet says that it has version %q", version)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		nodes[r.Host] = cluster.Node{Version: version, Reason: "no API server answers"}
		return err
	}) {
		if slices.Contains(live, e.Host) {
			unknown = append(unknown, e)
		}
	}
	if unknown != nil {
		return fault.Exit(fault.Advise(fmt.Errorf("no API server answers, and which kubelets run is not known: %w", joined(unknown)), "see what is wrong: kubexm status"+s.Which()), fault.ExitPreflight)
	}
	s.notice("warning: no API server answers: the versions of kubelets are those that the machines tell")
	s.cluster.Observed.Nodes = nodes
	return nil
}
