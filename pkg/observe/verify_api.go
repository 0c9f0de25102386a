package observe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/runner"
)

// objects are those of an API server that name hosts.
type objects struct {
	maps   map[string]map[string]string // data of ConfigMaps, by name; those that are not there are missing
	leases []coordinationv1.Lease       // of kube-system
	slice  *discoveryv1.EndpointSlice   // of the service kubernetes; nil: there is none
	fenced []string                     // IDs of machines whose nodes are denied
}

// fetch asks the API servers that were found ready, one after the other until one has answered everything.
func (v *verification) fetch(ctx context.Context) (o *objects, why error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	why = errors.New("no API server is ready")
	for _, m := range v.is.AnyAPI() {
		if r := v.hosts[m]; r != nil {
			if o, why = v.fetchFrom(kube.Impatient(ctx), r); why == nil {
				return o, nil
			}
		}
	}
	return nil, why
}

func (v *verification) fetchFrom(ctx context.Context, r *runner.Runner) (*objects, error) {
	client, err := v.client(r, func() kube.Access { return v.API(r.Host) })
	if err != nil {
		return nil, err
	}
	defer client.Close()
	o := &objects{maps: map[string]map[string]string{}}
	for _, name := range []string{"kube-system/kubeadm-config", "kube-system/kube-proxy", "kube-public/cluster-info"} {
		namespace, name, _ := strings.Cut(name, "/")
		found, err := client.Typed.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !kube.NotFound(err) {
			return nil, fmt.Errorf("reading ConfigMap %s: %w", name, err)
		}
		if err == nil {
			o.maps[name] = found.Data
		}
	}
	held, err := client.Typed.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing leases: %w", err)
	}
	o.leases = held.Items
	slice, err := client.Typed.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err == nil {
		o.slice = slice
	} else if !kube.NotFound(err) {
		return nil, fmt.Errorf("reading the endpoints of the service kubernetes: %w", err)
	}
	o.fenced, err = fenced(ctx, client)
	return o, err
}

// fence is the name of the policy that keeps lost machines out, and of what puts it into effect.
const fence = "kubexm-lost-machines"

// quoted matches texts in an expression.
var quoted = regexp.MustCompile(`'([^']*)'`)

// fenced are the machines that the policy keeps out; none where it is not in effect.
func fenced(ctx context.Context, client *kube.Client) (machines []string, err error) {
	policies := client.Typed.AdmissionregistrationV1()
	policy, err1 := policies.ValidatingAdmissionPolicies().Get(ctx, fence, metav1.GetOptions{})
	binding, err2 := policies.ValidatingAdmissionPolicyBindings().Get(ctx, fence, metav1.GetOptions{})
	if kube.NotFound(err1) || kube.NotFound(err2) {
		return nil, nil
	}
	if err := cmp.Or(err1, err2); err != nil {
		return nil, fmt.Errorf("reading the policy %s: %w", fence, err)
	}
	if binding.Spec.PolicyName != fence || !slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny) {
		return nil, nil
	}
	for _, v := range policy.Spec.Validations {
		for _, m := range quoted.FindAllStringSubmatch(v.Expression, -1) {
			machines = append(machines, m[1])
		}
	}
	return machines, nil
}

// lostMachines are those that were given up without being cleaned, by their IDs: what is known of them here, and what the API servers know.
func lostMachines(v *verification) []Check {
	return v.inAPI(func(o *objects) []Check { return []Check{lists(api, o.fenced, v.Fenced)} })
}

// kubeadmConfig is what kubeadm reads when it joins nodes. What the wanted one does not say may be anything.
func kubeadmConfig(v *verification) []Check {
	if v.ClusterConfiguration == nil {
		return nil
	}
	return v.inAPI(func(o *objects) []Check {
		const wanted = "as configured"
		var found, want any
		err := cmp.Or(yaml.Unmarshal([]byte(o.maps["kubeadm-config"]["ClusterConfiguration"]), &found), yaml.Unmarshal(v.ClusterConfiguration, &want))
		if err != nil {
			return []Check{same(api, err.Error(), wanted)}
		}
		differs := differing("", found, want)
		if differs == nil {
			differs = []string{wanted}
		}
		return []Check{same(api, listed(differs), wanted)}
	})
}

// differing returns the fields of a document that are not as wanted, with what is there of lists and texts. Arguments may hold anything, and are only named.
func differing(field string, found, wanted any) (all []string) {
	fields, is := wanted.(map[string]any)
	if !is {
		is, want := written(found), written(wanted)
		switch {
		case is == want:
			return nil
		case strings.Contains(field, "extra"):
			return []string{field}
		}
		return []string{field + ": " + is}
	}
	was, _ := found.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		all = append(all, differing(strings.TrimPrefix(field+"."+name, "."), was[name], fields[name])...)
	}
	return all
}

func written(value any) string {
	text, err := json.Marshal(value)
	if err != nil || value == nil {
		return "nothing"
	}
	return strings.Trim(string(text), `"`)
}

// clusterInfo is what tools of Kubernetes find a cluster by. kubeadm makes it at birth; nobody misses it.
func clusterInfo(v *verification) []Check {
	if !v.Kubeadm() {
		return nil
	}
	return v.inAPI(func(o *objects) []Check {
		text, there := o.maps["cluster-info"]["kubeconfig"]
		if !there {
			return nil
		}
		server, authority, err := pki.ServerOf([]byte(text))
		if err != nil {
			return []Check{same(api, err.Error(), v.Endpoint())}
		}
		if !bytes.Equal(bytes.TrimSpace(authority), bytes.TrimSpace(v.Trust(pki.Kubernetes))) {
			server += ", with another authority"
		}
		return []Check{same(api, server, v.Endpoint())}
	})
}

// kubeProxy is with what pods of kube-proxy call API servers. Elsewhere it has a file.
func kubeProxy(v *verification) []Check {
	if !v.Kubeadm() || !v.HasProxy() {
		return nil
	}
	return v.inAPI(func(o *objects) []Check {
		server, _, err := pki.ServerOf([]byte(o.maps["kube-proxy"]["kubeconfig.conf"]))
		if err != nil {
			server = err.Error()
		}
		return []Check{same(api, server, v.Endpoint())}
	})
}

// nodes are those that were observed.
func nodes(v *verification) (rows []Check) {
	if v.is.Nodes == nil {
		return []Check{unknown(api, v.away)}
	}
	for _, h := range v.Nodes() {
		node, joined := v.is.Nodes[h]
		row := same(h, "no node", v.IP(h))
		if joined {
			row = lists(h, node.Addresses, v.Host(h).IPs())
		}
		s, spoke := v.said[h]
		switch {
		case s.drained:
			row.Found, row.Result = row.Found+", drained by kubexm", Differs
		case node.Cordoned && !spoke && row.Result == OK:
			row.Found, row.Result = row.Found+", cordoned by whom is not known", Unknown
		}
		rows = append(rows, row)
	}
	for _, name := range slices.Sorted(maps.Keys(v.is.Nodes)) {
		if !slices.Contains(v.Nodes(), name) {
			rows = append(rows, same(name, cmp.Or(strings.Join(v.is.Nodes[name].Addresses, ", "), "a node"), "no node"))
		}
	}
	return rows
}

// apiService is by what pods reach API servers. These keep it themselves.
func apiService(v *verification) []Check {
	return v.inAPI(func(o *objects) []Check {
		var found, wanted []string
		if o.slice != nil {
			for _, e := range o.slice.Endpoints {
				found = append(found, e.Addresses...)
			}
		}
		for _, m := range v.masters() {
			wanted = append(wanted, v.IP(m))
		}
		return []Check{v.calling(api, found, wanted)}
	})
}

// leases are those of programs of which one leads.
func leases(v *verification) []Check {
	return v.inAPI(func(o *objects) (rows []Check) {
		k, vip := v.Spec.Kubernetes, plugin.VIPOf(v.Spec)
		names := append(lease("kube-controller-manager", k.ControllerManager.ExtraArgs), lease("kube-scheduler", k.Scheduler.ExtraArgs)...)
		if vip.Lease != "" && vip.Holds(v.Spec) {
			names = append(names, vip.Lease)
		}
		for _, name := range names {
			rows = append(rows, v.held(o, name))
		}
		return append(rows, own(o))
	})
}

// own is the lease of kubexm itself. Who is killed leaves it, until the next run or unlock removes it.
func own(o *objects) Check {
	row := Check{Where: kube.Lease, Result: OK, Found: "nobody", Wanted: "nobody, or a run that renews it"}
	for _, l := range o.leases {
		who, gone := kube.Claimant(&l.Spec)
		if l.Name != kube.Lease || who == "" {
			continue
		}
		if row.Found = who; gone {
			row.Found, row.Result = who+", who does not renew it any more", Differs
		}
	}
	return row
}

// lease is that of a program with such arguments; nil: it takes none, or one elsewhere.
func lease(program string, extra map[string]string) []string {
	for flag, value := range extra {
		switch flag = config.Dashed(flag); {
		case flag == "leader-elect" && value == "false", flag == "leader-elect-resource-namespace":
			return nil
		case flag == "leader-elect-resource-name":
			program = value
		}
	}
	return []string{program}
}

// held compares the holder of a lease with the masters. They call themselves as the machines do, with something random behind.
func (v *verification) held(o *objects, name string) Check {
	row := Check{Where: name, Result: Differs, Found: "nobody", Wanted: "a master"}
	for _, l := range o.leases {
		if l.Name == name && l.Spec.HolderIdentity != nil {
			row.Found = cmp.Or(*l.Spec.HolderIdentity, row.Found)
		}
	}
	holder, _, _ := strings.Cut(row.Found, "_")
	for _, m := range v.masters() {
		s, spoke := v.said[m]
		switch {
		case holder == m || spoke && strings.EqualFold(holder, s.hostname):
			row.Found, row.Result = m, OK
			return row
		case !spoke && row.Found != "nobody":
			row.Result = Unknown // it may be this one
		}
	}
	return row
}
