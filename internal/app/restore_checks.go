package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/backup"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// fixed are the fields on which what is in etcd is built, and their values.
func fixed(s *v1alpha1.Spec) map[string]string {
	return map[string]string{
		"spec.network.podCIDR": s.Network.PodCIDR, "spec.network.serviceCIDR": s.Network.ServiceCIDR, "spec.kubernetes.dnsDomain": s.Kubernetes.DNSDomain,
		"spec.kubernetes.apiServer.extraArgs.etcd-prefix": strings.TrimSuffix((&cluster.Cluster{Spec: s}).EtcdPrefix(), "/"),
	}
}

// fits refuses a backup that the configuration cannot be brought about with.
func (w *work) fits(m *backup.Manifest) error {
	spec, is := &w.config.Spec, config.ReleaseOf(&w.config.Spec)
	var err error
	switch {
	case w.config.Metadata.Name != m.Cluster:
		err = fmt.Errorf("the backup is of cluster %s, and the configuration describes %s", m.Cluster, w.config.Metadata.Name)
	case spec.Etcd.Type == v1alpha1.TypeExternal:
		err = errors.New("etcd is external: kubexm does not restore its data")
	case config.Minor(is.Kubernetes) != config.Minor(m.Kubernetes):
		err = fault.Advise(fmt.Errorf("the backup is of Kubernetes %s, and the configuration has %s", m.Kubernetes, is.Kubernetes), "set spec.kubernetes.version to the version of then, and upgrade later")
	case is.Etcd != "" && m.Etcd != "" && config.Minor(is.Etcd) < config.Minor(m.Etcd):
		err = fault.Advise(fmt.Errorf("the backup is of etcd %s, and the configuration has %s, which cannot read its data", m.Etcd, is.Etcd), "set spec.etcd.version to the version of then, or a newer one")
	}
	here := fixed(spec)
	for _, field := range slices.Sorted(maps.Keys(m.Fixed)) {
		if want := m.Fixed[field]; err == nil && here[field] != want {
			err = fmt.Errorf("%s is %s in the configuration, and was %s in the cluster of the backup, whose objects are built on that", field, here[field], want)
			err = fault.Advise(err, "give it the value of then")
		}
	}
	return fault.Exit(err, fault.ExitUsage)
}

// checkRestorable refuses machines that are not the cluster's, or another's.
func (s *site) checkRestorable(m *backup.Manifest) error {
	var others []string
	for _, h := range s.cluster.All() {
		if id := s.cluster.FactsOf(h).Env["id"]; id != "" && id != m.ID {
			others = append(others, fmt.Sprintf("%s is part of cluster %s, ID %s", h, s.cluster.FactsOf(h).Env["cluster"], id))
		}
	}
	if others == nil {
		return nil
	}
	err := fmt.Errorf("not machines of the cluster of the backup, whose ID is %s; nothing has been touched:\n  %s", m.ID, joinLines(others))
	return fault.Exit(fault.Advise(err, "take them out of spec.hosts, or delete the cluster that they are part of"), fault.ExitPreflight)
}

// inPlace reports whether the machines of the control plane have the cluster. That some have it and others have not is refused: those would go on with what they have.
func (s *site) inPlace() (bool, error) {
	var have, lack []string
	_, live := s.cluster.SplitMasters()
	for _, h := range s.cluster.Hosts(v1alpha1.RoleMaster, v1alpha1.RoleEtcd) {
		f := s.cluster.FactsOf(h)
		has := f.Env["cluster"] != "" // a run may only have begun to prepare it
		if s.cluster.Host(h).Is(v1alpha1.RoleMaster) {
			has = has && (slices.Contains(live, h) || slices.Contains(f.Leftovers, administratorConf))
		}
		if has {
			have = append(have, h)
		} else {
			lack = append(lack, h)
		}
	}
	if have == nil || lack == nil {
		return have != nil, nil
	}
	err := fmt.Errorf("%s have the cluster, and %s have not: it is restored on machines that all have it, or on such that have not", human.Names(have, 5), human.Names(lack, 5))
	return false, fault.Exit(fault.Advise(err, "take the machines out of spec.hosts that have it not, and add them later; or use others in the place of those that have it"), fault.ExitUsage)
}

// checkEdited refuses edits of the configuration that a restore in place cannot follow. Hosts that leave must be off.
func (s *site) checkEdited(inPlace bool) error {
	if !inPlace {
		return nil
	}
	if err := s.checkUnchanged(unready); err != nil {
		return err
	}
	changes, err := s.changes()
	if err != nil {
		return err
	}
	var gone []string
	for _, c := range changes {
		if c.Gone() {
			gone = append(gone, c.Host)
		}
	}
	if gone == nil || s.Force {
		return nil
	}
	err = fmt.Errorf("%s are to leave the cluster: they must be off, or they would go on with the data that they have", human.Names(gone, 5))
	return fault.Exit(fault.Advise(err, "when they are: --force; else put them back into spec.hosts, and delete them after the restore"), fault.ExitUsage)
}

// checkUtility looks for the program that restores data, where it cannot be downloaded: kubeadm's etcd does without it.
func (s *site) checkUtility(ctx context.Context) error {
	if !s.config.Spec.Source.Offline {
		return nil
	}
	for _, h := range s.cluster.RestoredMembers(true) {
		a := s.cluster.Artifact("etcd", h)
		if _, err := s.cluster.Store.Programs(ctx, a); err != nil {
			err = fmt.Errorf("%s is not in the store: etcdutl in it restores the data: %w", a, err)
			return fault.Exit(fault.Advise(err, "make a bundle that has it on a machine with a network: kubexm download --export FILE; and then here: kubexm import FILE"), fault.ExitUsage)
		}
	}
	return nil
}

// checkDead refuses to make a cluster a second time.
func (s *site) checkDead(ctx context.Context, m *backup.Manifest) error {
	endpoint, err := url.Parse(m.Endpoint)
	if err != nil {
		return err
	}
	from := s.hosts[s.cluster.ControlPlaneHosts()[0]]
	var alive []string
	for _, h := range m.Hosts {
		mine := slices.ContainsFunc(s.cluster.All(), func(name string) bool { return s.cluster.IP(name) == h.Address })
		if mine || !h.Is(string(v1alpha1.RoleMaster)) {
			continue
		}
		asked, cancel := context.WithTimeout(ctx, 3*time.Second)
		conn, err := from.Dial(asked, "tcp", net.JoinHostPort(h.Address, cmp.Or(endpoint.Port(), "443")))
		cancel()
		if err == nil {
			_ = conn.Close()
			alive = append(alive, h.Name+" ("+h.Address+")")
		}
	}
	if alive == nil {
		return nil
	}
	err = fmt.Errorf("THE CLUSTER OF THE BACKUP MAY STILL RUN: an API server answers on %s; two clusters with the same keys and names would both act on what is outside of them", human.Names(alive, 5))
	if s.Force {
		s.notice("warning: %v", err)
		return nil
	}
	return fault.Exit(fault.Advise(err, "stop it, or give --force"), fault.ExitUsage)
}
