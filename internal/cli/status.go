package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/etcd"
	"github.com/kubexm/kubexm/pkg/observe"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

func (p *program) statusCommand() *cobra.Command {
	cmd := p.ofCluster(&cobra.Command{
		Use: "status", Short: "Show the state of a cluster: nodes, control plane, addons, certificates", GroupID: groupLook,
		Long: `Show the state of a cluster: its nodes, the health of its control plane and of etcd, its
addons, the certificate that expires first, the last run. The machines and the API server
are reached through SSH; one that does not answer is shown as such.

With --verify it also looks wherever hosts are named, which is easily left as it was when
hosts come and go: members of etcd, arguments and certificates of API servers, load
balancers, kubeadm's configuration, /etc/hosts, kubeconfigs, nodes, leases. What differs is
shown, and what could not be asked; of the rest only that it is right.

The exit code is 1 when there is a problem, or a check is not passed.`,
		Example: "  kubexm status --name prod\n  kubexm status --name prod --watch\n  kubexm status --name prod --verify\n  kubexm status --name prod -o json | jq .problems",
	})
	p.keysFlag(cmd)
	format := output(cmd, "table", "json", "yaml")
	watch := cmd.Flags().Bool("watch", false, "show it again every "+human.Duration(watching)+", until Ctrl-C")
	cmd.Flags().BoolVar(&p.request.Verify, "verify", false, "also check that everything names exactly the hosts that the cluster has, and that nothing is left behind")
	show := func(cmd *cobra.Command) error {
		is, err := p.app.Status(cmd.Context(), p.request, p.observer())
		if *watch && terminal(p.out) {
			fmt.Fprint(p.out, ansi.EraseEntireDisplay+ansi.CursorHomePosition)
		}
		if err != nil {
			return err
		}
		if format.value != "table" {
			err = p.print(format.value, is)
		} else {
			_, err = fmt.Fprint(p.out, statusText(is, style.New(p.colors(p.out)), width(p.out), time.Now()))
		}
		if err == nil && !is.Healthy {
			err = fmt.Errorf("cluster %s has %s", is.Cluster, problemCount(is))
			err = fault.Advise(err, "see the problems above; kubexm apply"+p.app.Which(p.request)+" restores what differs from the configuration")
		}
		return err
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for {
			err := show(cmd)
			ended := cmd.Context().Err() != nil
			switch {
			case !*watch:
				return err
			case ended:
				return nil //nolint:nilerr // the user has seen enough
			case fault.ExitCode(err) == fault.ExitUsage, errors.Is(err, connector.ErrLogin), errors.Is(err, connector.ErrHostKey):
				return err // no further look would see anything else
			case err != nil:
				p.report(err)
			}
			select {
			case <-cmd.Context().Done():
				return nil
			case <-time.After(watching):
			}
		}
	}
	return cmd
}

// watching is the pause from one look of a watch to the next.
const watching = 5 * time.Second

// problemCount counts the checks that were not passed, too.
func problemCount(is *app.ClusterStatus) string {
	n := len(is.Problems)
	for _, c := range is.Checks {
		if c.Result != observe.OK {
			n++
		}
	}
	return human.Count(n, "problem")
}

// statusText is a page about a cluster.
func statusText(is *app.ClusterStatus, st style.Style, width int, now time.Time) string {
	var b strings.Builder
	how := st.Good.String("healthy")
	if !is.Healthy {
		how = st.Bad.String(problemCount(is))
	}
	version := is.Kubernetes
	if is.Server != "" && is.Server != is.Kubernetes {
		version = is.Server + ", configured " + is.Kubernetes
	}
	fmt.Fprintf(&b, "%s  %s  Kubernetes %s (%s)  %s\n\n", st.Bold.String(is.Cluster), how, version, is.Type, is.Endpoint)

	rows := [][]string{head(st.Dim, "NODE", "STATUS", "ROLES", "VERSION", "ADDRESS", "OS", "RUNTIME")}
	for _, n := range is.Nodes {
		paint := st.Bad
		switch n.Status {
		case "Ready":
			paint = st.Good
		case "Ready, cordoned", "not a node":
			paint = st.Warn
		}
		runtime := strings.Replace(n.Runtime, "://", " ", 1)
		rows = append(rows, []string{n.Name, paint.String(n.Status), strings.Join(n.Roles, ","), cmp.Or(n.Version, "-"), n.Address, cmp.Or(n.OS, "-"), cmp.Or(runtime, "-")})
	}
	b.WriteString(fitting(rows, width))
	if len(is.ControlPlane) > 0 {
		b.WriteString("\n" + table(controlPlane(is.ControlPlane, st)))
	}
	if len(is.Etcd) > 0 {
		b.WriteString("\n" + table(members(is.Etcd, st)))
	}
	if len(is.Addons) > 0 {
		rows := [][]string{head(st.Dim, "ADDON", "READY")}
		for _, a := range is.Addons {
			paint := st.Good
			if a.Ready < a.Wanted {
				paint = st.Bad
			}
			rows = append(rows, []string{a.Name, paint.String(fmt.Sprintf("%d/%d", a.Ready, a.Wanted))})
		}
		b.WriteString("\n" + table(rows))
	}
	if len(is.Checks) > 0 {
		b.WriteString("\n" + wrapped(checks(is.Checks, st), width))
	}
	b.WriteString("\n")
	if c := is.Certificate; c != nil {
		days := int(c.Expires.Sub(now).Hours() / 24)
		fmt.Fprintf(&b, "%s  %s, in %d days: %s on %s\n", st.Dim.String("FIRST TO EXPIRE"), c.Expires.Format(time.DateOnly), days, c.Path, c.Host)
	}
	if r := is.LastRun; r != nil {
		fmt.Fprintf(&b, "%s         %s: %s\n", st.Dim.String("LAST RUN"), r.ID, r.Result)
	}
	for _, problem := range is.Problems {
		fmt.Fprintf(&b, "%s  %s\n", st.Bad.String("PROBLEM"), problem)
	}
	return b.String()
}

// mostPlaces is how many of the places where a check is right are told.
const mostPlaces = 5

// checks has a row for each place that is not as wanted, and one for each check that is right everywhere.
func checks(all []observe.Check, st style.Style) [][]string {
	rows := [][]string{head(st.Dim, "WHAT", "WHERE", "FOUND", "WANTED")}
	for len(all) > 0 {
		what, n := all[0].What, 1
		for n < len(all) && all[n].What == what {
			n++
		}
		var places []string
		for _, c := range all[:n] {
			switch c.Result {
			case observe.OK:
				places = append(places, c.Where)
			case observe.Unknown:
				rows = append(rows, []string{what, c.Where, st.Warn.String("unknown: " + c.Found), cmp.Or(c.Wanted, "-")})
			default:
				rows = append(rows, []string{what, c.Where, st.Bad.String(c.Found), c.Wanted})
			}
		}
		if len(places) == n {
			rows = append(rows, []string{what, human.Names(places, mostPlaces), st.Good.String("ok"), ""})
		}
		all = all[n:]
	}
	return rows
}

// members has a row for each member of etcd.
func members(all []cluster.EtcdMember, st style.Style) [][]string {
	rows := [][]string{head(st.Dim, "ETCD", "ROLE", "HEALTH", "VERSION", "DATA")}
	for _, m := range all {
		role, data := "follower", "-"
		switch {
		case m.Leader:
			role = "leader"
		case m.Learner:
			role = "learner"
		case !m.Healthy && m.Version == "":
			role = "-"
		}
		if m.DBSize > 0 {
			data = human.Bytes(m.DBSize)
		}
		how := st.Good.String("ok")
		switch {
		case !m.Healthy:
			how = st.Bad.String("not ok")
		case m.Behind > etcd.MostBehind:
			how = st.Warn.String(fmt.Sprintf("%d behind", m.Behind))
		}
		rows = append(rows, []string{cmp.Or(m.Host, m.Name, fmt.Sprintf("%x", m.ID)), role, how, cmp.Or(m.Version, "-"), data})
	}
	return rows
}

// controlPlane has a row for each host and a column for each component.
func controlPlane(all []cluster.Component, st style.Style) [][]string {
	var hosts, names []string
	cells := map[string]string{}
	for _, c := range all {
		if !slices.Contains(hosts, c.Host) {
			hosts = append(hosts, c.Host)
		}
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
		cells[c.Host+c.Name] = st.Good.String(strings.TrimSpace("ok " + c.Version))
		if !c.Healthy {
			cells[c.Host+c.Name] = st.Bad.String("not ok")
		}
	}
	slices.Sort(names)
	titles := []string{"CONTROL PLANE"}
	for _, n := range names {
		titles = append(titles, strings.ToUpper(strings.TrimPrefix(n, "kube-")))
	}
	rows := [][]string{head(st.Dim, titles...)}
	for _, h := range hosts {
		row := []string{h}
		for _, n := range names {
			row = append(row, cmp.Or(cells[h+n], "-"))
		}
		rows = append(rows, row)
	}
	return rows
}
