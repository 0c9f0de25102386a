package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/kube"
	"github.com/kubexm/kubexm/pkg/pipeline"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/plugin"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/util/durable"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Why a host or an object is not as it is to be.
const (
	WhyFile  = "file"  // the configuration changed
	WhyDrift = "drift" // somebody else changed it, or a run was cut off
	WhyBoth  = "both"

	WhyCertificates = "certificates" // they are made anew, or authorities are exchanged

	WhyUpgrade = "upgrade" // its operating system has newer packages, or its machine is to be restarted
)

// Proposal is what an apply would do.
type Proposal struct {
	Cluster  string         `json:"cluster"`
	ID       string         `json:"id"`      // of the cluster
	Changes  []FieldChange  `json:"changes"` // of the configuration since it was last applied
	Steps    []ProposedStep `json:"steps"`   // that have something to do, in their order
	Restarts []Restart      `json:"restarts,omitempty"`
	Away     string         `json:"away,omitempty"` // for how long the API may be away, and for whom; empty: not at all
	Missing  []string       `json:"missing,omitempty"`
	Leaving  []string       `json:"leaving,omitempty"`  // hosts that leave the cluster
	Lost     []string       `json:"lost,omitempty"`     // those of them that are not there, to be cleaned
	Rejoin   []string       `json:"rejoin,omitempty"`   // those of them that join again
	Revision string         `json:"revision,omitempty"` // the run to whose configuration it goes back
	File     string         `json:"file,omitempty"`     // that then gets the text of that configuration
	Hash     string         `json:"hash"`               // of all that, and of what was observed

	summary engine.Summary
	events  []engine.Event // of the look
	began   time.Time
	old     bool // somebody has thought about it for longer than patience
}

// right are the nodes of which a look has just found that there is nothing to do.
func (p *Proposal) right() map[plan.ID]bool {
	is := map[plan.ID]bool{}
	for _, ev := range p.events {
		if ev.Status == engine.OK && !p.old {
			is[ev.Node] = true
		}
	}
	return is
}

// FieldChange is a field of the configuration that changed.
type FieldChange struct {
	Field string     `json:"field"`
	Was   string     `json:"was,omitempty"`
	Is    string     `json:"is,omitempty"`
	Way   config.Way `json:"way"` // how it is brought about
	text  string
}

func (f FieldChange) String() string { return f.text }

// ProposedStep is a step that has something to do.
type ProposedStep struct {
	Node     plan.ID  `json:"node"`
	Host     string   `json:"host"`
	What     string   `json:"what"`
	Why      string   `json:"why"` // see Why*
	Diff     string   `json:"diff,omitempty"`
	Restarts []string `json:"restarts,omitempty"`
}

// Restart is a service that is restarted, and where, in this order.
type Restart struct {
	Service string   `json:"service"`
	Hosts   []string `json:"hosts"`
}

// Empty reports whether there is nothing to do.
func (p *Proposal) Empty() bool { return len(p.Steps) == 0 }

// PlanApply looks what an apply would do. Nothing is changed. Of several runs it is the first.
func (a *App) PlanApply(ctx context.Context, r Request, o Observer) (*Proposal, error) {
	r.DryRun = true
	w, turns, err := a.beginApply(ctx, r, o)
	if err != nil {
		return nil, err
	}
	if turns != nil {
		w.close()
		w.notice("%s (run 1 of %d, which this is the plan of)", turns[0].says, len(turns))
		if w, err = a.begin(ctx, turns[0].Request, o); err != nil {
			return nil, err
		}
	}
	defer w.close()
	s, err := w.living(ctx, "apply")
	if err != nil {
		return nil, err
	}
	return s.propose(ctx)
}

// Apply brings a cluster that runs to what its configuration says. MayRestart is asked before anything is
// restarted. saved is a plan that was looked at before, which must still be what is to be done; nil: there is none.
func (a *App) Apply(ctx context.Context, r Request, o Observer, saved *Proposal) (*Result, error) {
	if saved != nil {
		r.Revision = cmp.Or(r.Revision, saved.Revision)
	}
	w, turns, err := a.beginApply(ctx, r, o)
	if err != nil {
		return nil, err
	}
	if turns != nil {
		w.close()
		return a.inTurns(ctx, turns, o, saved)
	}
	return w.apply(ctx, saved, nil)
}

// beginApply is begin that also finds the runs that are needed, where one is not enough.
func (a *App) beginApply(ctx context.Context, r Request, o Observer) (*work, []turn, error) {
	w, err := a.begin(ctx, r, o)
	if err != nil {
		return nil, nil, err
	}
	err = w.checkReplace()
	var turns []turn
	if err == nil {
		turns, err = w.ahead(ctx)
	}
	if err != nil {
		w.close()
	}
	return w, turns, err
}

// apply is one run of Apply, the last one before it being another; nil: there is none. It closes the work.
func (w *work) apply(ctx context.Context, saved *Proposal, last *Result) (*Result, error) {
	defer w.close()
	s, err := w.living(ctx, "apply")
	if err == nil {
		err = s.undisturbed(ctx, last)
	}
	if err != nil {
		return nil, err
	}
	res, err := s.bring(ctx, "apply", saved, false)
	if res != nil {
		res.kept = s.cluster.Kept()
	}
	return res, err
}

// bring brings a cluster that runs to its configuration, as Apply says. While it is being created, nobody is asked: nobody uses it yet.
func (s *site) bring(ctx context.Context, name string, saved *Proposal, built bool) (*Result, error) {
	p := &Proposal{}
	if !s.DryRun || saved != nil {
		var err error
		if p, err = s.propose(ctx); err != nil {
			return nil, err
		}
		if saved != nil && saved.Hash != p.Hash {
			return nil, moved(saved, p)
		}
	} else if err := s.drainable(ctx, s.drains()); err != nil {
		return nil, err
	}
	complete, err := s.completed()
	if err != nil {
		return nil, err
	}
	if len(p.Restarts)+len(p.Leaving) > 0 && (complete || name == "apply") && !s.DryRun {
		if err := s.ask(ctx, p); err != nil {
			return nil, err
		}
	}
	if err := s.leadFresh(ctx); err != nil {
		return nil, err
	}
	graph, err := planned(s.cluster, pipeline.Apply) // steps are used once
	if err == nil {
		err = s.files(built)
	}
	if err == nil && !s.DryRun {
		err = s.writeBack()
	}
	if err != nil {
		return nil, err
	}
	watch := s.watchAPI(ctx, p)
	res, err := s.runSeen(ctx, name, graph, p)
	res, err = s.configured(ctx, res, err)
	if away := watch.end(); res != nil {
		res.Away = away
	}
	return res, err
}

// ask asks whether services and machines may be restarted.
func (s *site) ask(ctx context.Context, p *Proposal) error {
	if s.MayRestart == nil {
		return errUnasked
	}
	asked := time.Now()
	err := s.MayRestart(ctx, p)
	p.old = time.Since(asked) > patience
	return err
}

// living connects to a cluster that runs, for a run of a pipeline.
func (w *work) living(ctx context.Context, pipe string) (*site, error) {
	if err := w.checkMade(); err != nil {
		return nil, err
	}
	s, err := w.enter(ctx, pipe, false)
	if err == nil && !s.cluster.Lives() {
		err = fmt.Errorf("cluster %s does not run: none of its masters has an API server", s.config.Metadata.Name)
		if len(w.moves) > 0 {
			return nil, fault.Advise(err, "as its machines have other addresses now, it runs again once kubexm apply"+s.Which()+" has begun")
		}
		err = fault.Advise(err, "create it, or finish creating it: kubexm create cluster"+s.Which())
	}
	return s, err
}

// propose finds what brings the cluster to its configuration, and tells why.
func (s *site) propose(ctx context.Context) (*Proposal, error) {
	p, nodes, err := s.look(ctx, pipeline.Apply)
	if err != nil {
		return nil, err
	}
	changes, err := s.changes()
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		p.Changes = append(p.Changes, FieldChange{c.Field, c.Was, c.Is, c.Policy.Way, c.String()})
	}
	if err := s.drainable(ctx, s.drains()); err != nil {
		return nil, err
	}
	s.explain(ctx, p, nodes, len(changes) > 0)
	p.Away = s.away(p.Restarts)
	p.Hash, err = p.hash(s)
	return p, err
}

// look asks all steps of a pipeline what they would change, and returns the nodes of those that have something to do, too.
func (s *site) look(ctx context.Context, make func(*cluster.Cluster) plan.Pipeline) (p *Proposal, nodes []*plan.Node, err error) {
	graph, err := planned(s.cluster, make)
	if err != nil {
		return nil, nil, err
	}
	p = &Proposal{Cluster: s.config.Metadata.Name, ID: s.cluster.ID(), Missing: s.cluster.Missing(), Leaving: s.cluster.Leaving(), Revision: s.Revision, Changes: []FieldChange{}, Steps: []ProposedStep{}}
	p.Lost, p.Rejoin = s.cluster.Lost(), slices.Sorted(maps.Keys(s.At))
	if s.Edit == nil && s.found == nil {
		p.File = s.back
	}
	e := s.engine()
	e.DryRun, e.LookAhead = true, true
	pending := map[plan.ID]engine.Event{}
	p.began = time.Now()
	e.Sink = func(ev engine.Event) {
		p.events = append(p.events, ev)
		if ev.Status == engine.Pending {
			pending[ev.Node] = ev
		}
	}
	if p.summary, err = e.Run(kube.Impatient(ctx), graph); err != nil {
		return nil, nil, err
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	for i := range graph.Nodes {
		n := &graph.Nodes[i]
		ev, ok := pending[n.ID]
		if !ok {
			continue
		}
		nodes = append(nodes, n)
		p.Steps = append(p.Steps, ProposedStep{Node: n.ID, Host: n.Host, What: n.What, Diff: ev.Diff, Restarts: ev.Restarts})
		for _, service := range ev.Restarts {
			p.restart(service, n.Subject())
		}
	}
	return p, nodes, nil
}

// drains are the nodes that are to be drained for other kubelets.
func (s *site) drains() []string {
	_, live := s.cluster.SplitNodes(s.cluster.Nodes())
	return s.cluster.Drains(live)
}

// drainable refuses to begin where pods of nodes that are to be drained would start nowhere else, or where data on it would be lost as it leaves.
func (s *site) drainable(ctx context.Context, drains []string) error {
	var leave []string
	if !s.Force {
		leave = s.cluster.FormerNodes()
	}
	var asks errgroup.Group
	asks.SetLimit(32)
	how := s.config.Spec.Upgrade.Drain
	all := make([]error, len(drains)+len(leave))
	for i, h := range append(slices.Clone(drains), leave...) {
		asks.Go(func() error {
			client, err := step.Kube(s.hosts[plan.API], s.cluster.AnyAPI())
			if err == nil {
				leaves := i >= len(drains)
				_, err = client.Evictable(kube.Impatient(ctx), h, kube.Lose{Lone: !leaves && how.Force, Local: leaves || *how.DeleteEmptyDir})
			}
			if err == nil && i >= len(drains) {
				err = client.Leavable(kube.Impatient(ctx), h, s.cluster.GoneNodes())
			}
			if !fault.IsTransient(err) { // the drain itself asks again
				all[i] = err
			}
			return nil
		})
	}
	_ = asks.Wait() // their errors are in all
	return errors.Join(s.cluster.KeepsMajority(), s.cluster.Steps(), s.cluster.KeepsEtcd(), errors.Join(all...))
}

func (p *Proposal) restart(service, host string) {
	for i := range p.Restarts {
		if r := &p.Restarts[i]; r.Service == service {
			if !slices.Contains(r.Hosts, host) {
				r.Hosts = append(r.Hosts, host)
			}
			return
		}
	}
	p.Restarts = append(p.Restarts, Restart{service, []string{host}})
}

// hash changes when the configuration, the cluster, or what is to be done changes.
func (p *Proposal) hash(s *site) (string, error) {
	resolved, err1 := s.resolved(false)
	steps := slices.Clone(p.Steps)
	for i := range steps {
		steps[i].Diff = observed(steps[i].Diff)
	}
	text, err2 := json.Marshal(struct {
		ID      string
		Steps   []ProposedStep
		Missing []string
	}{p.ID, steps, p.Missing})
	sum := sha256.Sum256(append(resolved, text...))
	return hex.EncodeToString(sum[:]), errors.Join(err1, err2)
}

// sizes are those of a file before and after a change.
var sizes = regexp.MustCompile(` -> \d+ bytes`)

// observed is what a diff tells of what is there. What would be there follows from the configuration, but for
// certificates, which are recreated by each plan.
func observed(diff string) string {
	var kept strings.Builder
	for l := range strings.Lines(diff) {
		if !strings.HasPrefix(l, "+") && !strings.HasPrefix(l, "@@") {
			kept.WriteString(sizes.ReplaceAllString(l, ""))
		}
	}
	return kept.String()
}

// moved says how what is to be done differs from a plan that was saved.
func moved(saved, now *Proposal) error {
	describe := func(p *Proposal) map[string]string {
		all := map[string]string{}
		for _, s := range p.Steps {
			all[s.What+" on "+s.Host] = observed(s.Diff)
		}
		return all
	}
	was, is := describe(saved), describe(now)
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(is)) {
		if d, ok := was[k]; !ok {
			lines = append(lines, "new: "+k)
		} else if d != is[k] {
			lines = append(lines, "differs: "+k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(was)) {
		if _, ok := is[k]; !ok {
			lines = append(lines, "gone: "+k)
		}
	}
	if saved.ID != now.ID {
		lines = []string{"it was made for another cluster, " + saved.Cluster}
	}
	if lines == nil {
		lines = []string{"the configuration changed"}
	}
	err := fmt.Errorf("the saved plan is no longer what would be done; nothing was touched:\n  %s", joinLines(lines))
	return fault.Exit(fault.Advise(err, "look again: kubexm plan apply --diff --out FILE"), fault.ExitFailed)
}

// SavePlan writes a proposal for a later Apply.
func SavePlan(file string, p *Proposal) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err == nil {
		err = durable.Write(file, text)
	}
	if err != nil {
		return durable.Advise(fmt.Errorf("saving the plan: %w", err))
	}
	return nil
}

// LoadPlan reads a proposal that SavePlan wrote.
func LoadPlan(file string) (*Proposal, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fault.Exit(fmt.Errorf("reading the saved plan: %w", err), fault.ExitUsage)
	}
	p := &Proposal{}
	if err := json.Unmarshal(text, p); err != nil || p.Hash == "" {
		err = fmt.Errorf("%s is not a plan that kubexm has saved", file)
		return nil, fault.Exit(fault.Advise(err, "make one: kubexm plan apply --out FILE"), fault.ExitUsage)
	}
	return p, nil
}

// away says for how long the API may be away while services are restarted.
func (s *site) away(restarts []Restart) string {
	servers := slices.ContainsFunc(restarts, func(r Restart) bool { return slices.Contains([]string{"kube-apiserver", "etcd"}, r.Service) })
	c := s.cluster
	vip := plugin.VIPOf(c.Spec)
	units := []string{vip.Unit}
	for _, p := range plugin.Proxies() { // one may give way to another
		units = append(units, p.Unit)
	}
	var balancers []string
	for _, r := range restarts {
		if slices.Contains(units, r.Service) {
			balancers = append(balancers, r.Service)
		}
	}
	switch {
	case !servers && balancers == nil:
		return ""
	case len(c.Masters()) == 1:
		return "until its only API server is back: about 10 s"
	case c.Balancer() == "" && servers:
		return "for workers, which all ask " + c.FirstMaster() + ", until its API server is back: about 10 s; elsewhere for one request"
	case vip.Pod:
		return "until " + vip.Name + " has moved the address: at most 10 s"
	case balancers != nil:
		return "while " + strings.Join(balancers, " and ") + " restarts: about 2 s, one machine at a time"
	}
	return cmp.Or("for about one request per machine that changes: at most 1 s")
}
