package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/step/kubeadm"
	"github.com/kubexm/kubexm/pkg/util/diff"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

var (
	// emptied are the directories that delete empties, and what says whether containerd is Docker's.
	emptied = regexp.MustCompile(`^(etcd\.dataDir|runtime\.dataRoot|registry\.(dataDir|type))$`)

	// begun are fields that cannot change once a cluster is begun.
	begun = regexp.MustCompile(emptied.String() + `|^(kubernetes\.(type|version|dnsDomain|nodeCidrMaskSize)|etcd\.(type|version)|runtime\.type|` +
		`network\.(podCIDR|serviceCIDR|plugin)|loadBalancer\..*|hosts\..*\.(name|internalAddress|roles))$`)

	// founding are roles that no host can be given later, so far.
	founding = regexp.MustCompile(`"(master|etcd|loadbalancer)"`)

	// initialised are fields that kubeadm has acted upon, once and for all so far. Where the files of an
	// external etcd are is not among them: kubexm brings what is in them to the masters.
	initialised = regexp.MustCompile(`^(kubernetes\.|etcd\.([^e]|extraArgs|external\.endpoints))`)
)

// change is a field that differs between two configurations.
type change struct{ field, was, is string }

func (c change) String() string { return fmt.Sprintf("spec.%s: %s -> %s", c.field, c.was, c.is) }

// configs are the configuration that the cluster was last made with and the one of now, with all defaults filled in and
// no secret shown: what another kubexm takes for a default is no change. The first is nil where there is none, or none
// any more: a power cut may have taken it from an older version.
func (s *session) configs() (was, is []byte, err error) {
	applied, err := s.records.Applied()
	if err != nil || applied == nil || len(applied.Resolved) == 0 {
		return nil, nil, err
	}
	return applied.Resolved, s.resolved, nil
}

// changes compares the configuration with the one that the cluster was last made
// with; nil where there is none. Hosts that are new are no change, nor are those that
// are gone and that no run came to.
func (s *session) changes() ([]change, error) {
	was, is, err := s.configs()
	if was == nil || err != nil {
		return nil, err
	}
	before, err1 := fields(was)
	now, err2 := fields(is)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	var all []change
	var reached map[string]bool
	both := maps.Clone(before)
	maps.Copy(both, now)
	for _, f := range slices.Sorted(maps.Keys(both)) {
		host := hostOf(f)
		gone := host != "" && now[host+".name"] == ""
		if gone && reached == nil {
			if reached, err = s.touched(); err != nil {
				return nil, err
			}
		}
		_, known := reached[strings.TrimPrefix(host, "hosts.")]
		switch {
		case before[f] == now[f]:
		case f == host+".roles" && before[f] == "" && founding.MatchString(now[f]):
			all = append(all, change{f, "(none)", now[f]})
		case gone && len(reached) > 0 && !known:
		case host == "" || f == host+".name" && now[f] == "" || before[host+".name"] != "" && now[host+".name"] != "":
			all = append(all, change{f, cmp.Or(before[f], "(none)"), cmp.Or(now[f], "(none)")})
		}
	}
	return all, nil
}

// hostOf is hosts.NAME of a field of a host; empty: it is another field.
func hostOf(field string) string {
	if rest, ok := strings.CutPrefix(field, "hosts."); ok {
		name, _, _ := strings.Cut(rest, ".")
		return "hosts." + name
	}
	return ""
}

// fields lists the values of spec by path: kubernetes.version, hosts.node1.roles.
func fields(text []byte) (map[string]string, error) {
	var doc struct{ Spec map[string]any }
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("reading the configuration that the cluster was begun with: %w", err)
	}
	all := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				walk(path+"."+k, e)
			}
		case []any:
			for _, e := range v {
				m, _ := e.(map[string]any)
				if name, ok := m["name"].(string); ok && path == ".hosts" {
					walk(path+"."+name, m)
					continue
				}
				text, _ := json.Marshal(v) // it came from YAML
				all[path[1:]] = string(text)
				return
			}
		default:
			all[path[1:]] = fmt.Sprint(v)
		}
	}
	walk("", doc.Spec)
	return all, nil
}

// checkUnchanged refuses changes of fields that cannot change any more.
func (s *session) checkUnchanged(fixed *regexp.Regexp) error {
	all, err := s.changes()
	if err != nil {
		return err
	}
	var refused []string
	for _, c := range all {
		if fixed.MatchString(c.field) {
			refused = append(refused, c.String())
		}
	}
	if refused == nil {
		return nil
	}
	err = fmt.Errorf("the configuration changed in what a cluster cannot change after it was begun:\n  %s", joinLines(refused))
	return fault.Exit(fault.Advise(err, "put the old values back (kubexm config diff"+s.Which()+" shows them), or delete the cluster first"), fault.ExitUsage)
}

// checkInitialised refuses changes that kubeadm would have to bring to a control
// plane that it has made already.
func (s *session) checkInitialised(ctx context.Context) error {
	if s.config.Spec.Kubernetes.Type != v1alpha1.TypeKubeadm {
		return nil
	}
	err := s.checkUnchanged(initialised)
	if err == nil {
		return nil
	}
	master := s.cluster.FirstMaster()
	made, ask := s.hosts[master].Exists(ctx, kubeadm.Done)
	if ask != nil {
		return fmt.Errorf("host %s: %w", master, ask)
	}
	if len(made) == 0 {
		return nil // kubeadm is still to come
	}
	return err
}

// sameConfig refuses to resume with another configuration than the one begun with.
func (s *session) sameConfig() error {
	was, is, err := s.configs()
	if was == nil || err != nil {
		return err
	}
	changes := diff.Unified("spec", string(was), string(is))
	if changes == "" {
		return nil
	}
	err = fmt.Errorf("the configuration changed since the run that is to be resumed:\n%s", changes)
	return fault.Exit(fault.Advise(err, "run the same command without --resume to go on with the new configuration, or put the old one back"), fault.ExitUsage)
}
