package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/util/durable"
)

// What to do with machines whose host keys are not known.
const (
	ask       = "ask"
	acceptNew = "accept-new"
)

// hostKeys is what to do with a machine whose host key is not known: what is asked for, else what is configured, else to ask whoever is there.
func (u *use) hostKeys(c v1alpha1.Connection) string {
	byDefault := acceptNew
	if u.MayTrust != nil {
		byDefault = ask
	}
	return cmp.Or(u.HostKeys, c.HostKeyPolicy, byDefault)
}

// knownHosts is the file in which the host keys of the cluster's machines are recorded.
func (s *session) knownHosts() string { return filepath.Join(s.dir, hostKeysFile) }

// hostKeysFile has the host keys of a cluster's machines, in its directory.
const hostKeysFile = "known_hosts"

// stranger is a machine whose host key is not known.
type stranger struct {
	conf   connector.SSHConfig
	policy string
	behind *v1alpha1.Host // that is it and is behind a bastion; nil: it is reached directly
}

// meet finds the machines whose host keys are not known, and asks whether they are the right ones where it is to: bastions first, as others are
// reached by way of them. A machine that is not trusted is refused when it is connected.
func (f *fleet) meet(ctx context.Context) (bastions, hosts []stranger) {
	for _, h := range f.of.machines() {
		policy := f.of.hostKeys(h.Connection)
		host := stranger{f.toHost(h, f.of.knownHosts()), policy, nil}
		if h.Bastion != nil {
			bastions = append(bastions, stranger{f.toBastion(h, f.of.knownHosts()), policy, nil})
			host.behind = h
		}
		hosts = append(hosts, host)
	}
	bastions, hosts = f.unknown(bastions), f.unknown(hosts)
	f.ask(ctx, bastions)
	f.ask(ctx, hosts)
	return bastions, hosts
}

// unknown are those of the machines whose host keys are neither configured nor on record, each once.
func (f *fleet) unknown(all []stranger) (unknown []stranger) {
	keys, err := connector.ReadHostKeys(f.of.knownHosts())
	if err != nil {
		return nil // whoever connects says so
	}
	met := map[string]bool{}
	for _, s := range all {
		if !met[s.conf.Endpoint()] && len(keys.Of(s.conf)) == 0 {
			unknown = append(unknown, s)
		}
		met[s.conf.Endpoint()] = true
	}
	return unknown
}

// ask shows the keys of machines to whoever can tell whether they are right, and records them.
func (f *fleet) ask(ctx context.Context, strangers []stranger) {
	strangers = slices.DeleteFunc(slices.Clone(strangers), func(s stranger) bool { return s.policy != ask })
	if len(strangers) == 0 || f.of.MayTrust == nil {
		return
	}
	shown, why := make([]connector.HostKey, len(strangers)), make([]error, len(strangers))
	var group errgroup.Group
	group.SetLimit(connecting)
	for i, s := range strangers {
		group.Go(func() error {
			if s.behind != nil {
				s.conf, why[i] = f.sshTo(ctx, s.behind, f.of.knownHosts())
			}
			if why[i] == nil {
				shown[i], why[i] = connector.ShownKey(ctx, s.conf)
			}
			return nil
		})
	}
	_ = group.Wait()
	for i, err := range why { // whoever connects says so, too
		if err != nil {
			f.silent = append(f.silent, &HostError{strangers[i].conf.Name, err})
		}
	}
	shown = slices.DeleteFunc(shown, func(k connector.HostKey) bool { return k.Key == "" })
	if len(shown) == 0 || f.of.MayTrust(ctx, shown) != nil {
		return
	}
	f.unkept = errors.Join(f.unkept, durable.Advise(connector.Trust(f.of.knownHosts(), shown)))
}

// backupServers are how to reach those that backups are kept on by SFTP.
func (s *session) backupServers(b v1alpha1.Backup) (all []connector.SSHConfig) {
	for _, t := range b.Targets {
		if to := t.SFTP; to != nil {
			all = append(all, s.fleet().ssh(to.Address, to.Address, to.HostKey, to.Credentials, s.config.Spec.Global, s.knownHosts()))
		}
	}
	return all
}

// acquaint is meet for servers that are no hosts. Their keys are recorded here where nobody is to be asked: they are reached later, if at all.
func (f *fleet) acquaint(ctx context.Context, servers []connector.SSHConfig) {
	var all []stranger
	for _, conf := range servers {
		all = append(all, stranger{conf, f.of.hostKeys(f.of.config.Spec.Global), nil})
	}
	if all = f.unknown(all); len(all) == 0 {
		return
	}
	f.ask(ctx, all)
	var shown []connector.HostKey
	for _, s := range all {
		if s.policy != acceptNew {
			continue
		}
		if key, err := connector.ShownKey(ctx, s.conf); err == nil && key.Key != "" { // whoever connects says why not
			shown = append(shown, key)
		}
	}
	f.unkept = errors.Join(f.unkept, durable.Advise(connector.Trust(f.of.knownHosts(), shown)))
	f.tellRecorded(all)
}

// tellRecorded tells of the keys that were recorded without a question.
func (f *fleet) tellRecorded(strangers []stranger) {
	keys, err := connector.ReadHostKeys(f.of.knownHosts())
	if err != nil {
		return // whoever connected said so
	}
	var lines []string
	for _, s := range strangers {
		for _, key := range keys.Of(s.conf) {
			if s.policy == acceptNew {
				lines = append(lines, "  "+key.String())
			}
		}
	}
	if len(lines) == 0 {
		return
	}
	const most = 10
	if n := len(lines) - most; n > 0 {
		lines = append(lines[:most], fmt.Sprintf("  and %d more", n))
	}
	f.of.notice("warning: machines seen for the first time; their host keys were not known, and are trusted from now on (%s):\n%s\n"+
		"compare them with ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub on the machines' consoles; to refuse unknown keys: --host-keys strict",
		f.of.knownHosts(), strings.Join(lines, "\n"))
}

// TrustedHost is a host of which keys are known, from the configuration or from what is on record.
type TrustedHost struct {
	Name          string
	Keys, Bastion []connector.HostKey // of the bastion: none where it is reached directly
}

// TrustHosts asks all machines of a cluster, and the servers that have its backups, whose host keys are not known for them, and records those that MayTrust agrees to. It returns what is known of all
// hosts then, and an error for those that have shown none, or whose keys could not be recorded.
func (a *App) TrustHosts(ctx context.Context, r Request, o Observer) ([]TrustedHost, error) {
	r.HostKeys = ask
	s, err := a.open(ctx, r, o)
	if err != nil {
		return nil, err
	}
	if err := s.makeDir(); err != nil {
		return nil, err
	}
	f := s.fleet()
	defer f.hangUp()
	f.meet(ctx)
	f.acquaint(ctx, s.backupServers(s.config.Spec.Backup))
	keys, err := connector.ReadHostKeys(s.knownHosts())
	if err != nil {
		return nil, err
	}
	all := []TrustedHost{}
	for i := range s.config.Spec.Hosts {
		h := &s.config.Spec.Hosts[i]
		one := TrustedHost{Name: h.Name, Keys: keys.Of(f.toHost(h, s.knownHosts()))}
		if h.Bastion != nil {
			one.Bastion = keys.Of(f.toBastion(h, s.knownHosts()))
		}
		all = append(all, one)
	}
	return all, errors.Join(joined(f.silent), f.unkept)
}
