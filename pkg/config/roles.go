package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

var hostRange = regexp.MustCompile(`^([^\[\]]*)\[(\d+):(\d+)\]([^\[\]]*)$`)

// dashedRange is how Ansible and others write one.
var dashedRange = regexp.MustCompile(`\[(\d+)-(\d+)\]`)

// expand returns the host names that an entry of a role group stands for.
func expand(entry string) ([]string, error) {
	m := hostRange.FindStringSubmatch(entry)
	if m == nil {
		if dashedRange.MatchString(entry) {
			return nil, fmt.Errorf("a range is written with a colon, like %s", dashedRange.ReplaceAllString(entry, "[$1:$2]"))
		}
		return []string{entry}, nil
	}
	from, _ := strconv.Atoi(m[2])
	to, _ := strconv.Atoi(m[3])
	if from > to || to-from >= 10_000 || len(m[2]) > 9 || len(m[3]) > 9 { // more digits than any number of hosts has
		return nil, fmt.Errorf("a range goes upwards over at most 10000 hosts, like node[1:3]")
	}
	width := 0
	if m[2][0] == '0' {
		width = len(m[2])
	}
	var all []string
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprintf("%s%0*d%s", m[1], width, i, m[4]))
	}
	return all, nil
}

type roleGroup struct {
	role  v1alpha1.Role
	hosts []string
}

func groupsOf(g v1alpha1.RoleGroups) []roleGroup {
	return []roleGroup{
		{v1alpha1.RoleMaster, g.Master},
		{v1alpha1.RoleEtcd, g.Etcd},
		{v1alpha1.RoleWorker, g.Worker},
		{v1alpha1.RoleRegistry, g.Registry},
		{v1alpha1.RoleLoadBalancer, g.LoadBalancer},
	}
}

// resolveRoles gives every host all its roles, in the order of the constants.
func resolveRoles(s *v1alpha1.Spec) {
	has := map[string]map[v1alpha1.Role]bool{}
	for _, g := range groupsOf(s.RoleGroups) {
		for _, entry := range g.hosts {
			hosts, _ := expand(entry) // what cannot be expanded is Validate's matter
			for _, name := range hosts {
				if has[name] == nil {
					has[name] = map[v1alpha1.Role]bool{}
				}
				has[name][g.role] = true
			}
		}
	}
	stacked := stacked(s)
	for i := range s.Hosts {
		h, roles := &s.Hosts[i], []v1alpha1.Role(nil)
		for _, g := range groupsOf(s.RoleGroups) {
			if h.Is(g.role) || has[h.Name][g.role] || stacked && g.role == v1alpha1.RoleEtcd && slices.Contains(roles, v1alpha1.RoleMaster) {
				roles = append(roles, g.role)
			}
		}
		h.Roles = roles
	}
}

// stacked reports whether the masters have the role etcd without its being written.
func stacked(s *v1alpha1.Spec) bool {
	return s.Etcd.Type == v1alpha1.TypeKubeadm && len(s.RoleGroups.Etcd) == 0 &&
		!slices.ContainsFunc(s.Hosts, func(h v1alpha1.Host) bool { return h.Is(v1alpha1.RoleEtcd) })
}
