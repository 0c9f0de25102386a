// Package app holds what kubexm can do, one use case a method of App: load the
// configuration, lock the cluster, connect, gather facts, plan, run, record.
// The command line and the REST API both call it.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// App is kubexm in one process, which may serve many clusters at the same time: where it keeps what it makes, and how
// it reaches machines. What concerns one use of one cluster is in a Request and an Observer.
type App struct {
	Workdir string        // on the control machine
	Version string        // of this program
	Store   store.Options // how what is remembered of clusters is opened
	Steps   chan struct{} // of as many places as steps may run at a time, of all clusters; nil: each run has its own limits

	// Here reaches the machine that finds out which packages operating systems have. nil: this one.
	Here connector.Connector
	// Dial reaches a host. nil: by SSH, as configured.
	Dial func(ctx context.Context, h *v1alpha1.Host, knownHosts string) (connector.Connector, error)
}

// Request is what is asked for. It is data.
type Request struct {
	Name          string // of the cluster; its configuration is conf/<name>/cluster.yaml
	File          string // configuration file, instead of Name
	Given         []byte // the text of File, where that is not a file but "-"
	Revision      string // plan, apply: go back to the configuration that this run applied; empty: what the file says
	Parallel      int    // hosts and steps at a time; 0: the engine's default
	DryRun        bool
	Resume        bool
	NoRollBack    bool
	Rollback      engine.Rollback   // when a step fails; "": RollbackHost
	Force         bool              // delete: also without the cluster's keys, and without machines that cannot be reached; apply: these machines leave the cluster, pods and data on those that leave may be lost
	SkipPreflight []string          // names of checks
	HostKeys      string            // what to do with machines whose host keys are not known: ask, accept-new, strict; empty: as configured
	Debug         bool              // every command on hosts is logged
	Replace       []string          // apply: hosts whose machines are other ones now
	Edit          *config.Edit      // apply: of the hosts of the configuration, before anything else; nil: none
	At            map[string]string // by host that leaves, to join again: where it is reached now
	Only          []string          // upgrade: nodes that may get another kubelet now: names, roles, labels like zone=a; empty: all
	Verify        bool              // status: also whether everything names the hosts that the cluster has
	AllowMissing  bool              // create, plan, apply, preflight: without hosts that cannot be reached, where the others can do without them

	in       *document           // the configuration, whatever the others say; nil: there is no other
	pass     bool                // the release of that is one on the way to another
	goal     config.Release      // that other one
	backward bool                // it goes back: kubelets that are older already stay
	later    []*v1alpha1.Cluster // configurations with the releases that come after it
	was      *v1alpha1.Cluster   // the configuration from which hosts move
	moves    map[string]move     // by host
	restore  *cluster.Restore    // it begins anew with this; nil: it does not
}

// Observer follows one use of a cluster, and answers its questions. Nobody is told by a function that is nil; a
// question to one is answered with no.
type Observer struct {
	Notice func(text string)                            // told what is going on aside from events, at any time
	Begin  func(cluster string, g *plan.ExecutionGraph) // told the plan before it runs
	Event  func(engine.Event)                           // told every event of the run, one at a time; the run waits for it, so that one that may be slow is an engine.Subscriber
	Log    io.WriteCloser                               // the log with Request.Debug, where there is no run that has one; nil: nowhere
	Stop   <-chan struct{}                              // closed: the run stops cleanly

	// An error is a no.
	MayTrust   func(ctx context.Context, shown []connector.HostKey) error // are these the keys of machines that are not known yet? nil: nobody can be asked
	MayRestart func(ctx context.Context, what *Proposal) error            // Apply, Create, Install: may services be restarted?
	MayForget  func(ctx context.Context, cluster, why string) error       // Delete: even though no machine was reached?
	MayUnlock  func(ctx context.Context, held []Locked) error             // Unlock: may these locks be removed?
	MayRestore func(ctx context.Context, what Restoring) error            // Restore: may the cluster lose what has changed since?
}

// use is one use of kubexm.
type use struct {
	app *App
	Request
	Observer
	log *runLog
}

func (a *App) use(r Request, o Observer) *use {
	l := newLog(r.Debug)
	if r.Debug && o.Log != nil {
		_ = l.open(o.Log) // nothing was logged yet
	}
	return &use{a, r, o, l}
}

func (u *use) notice(format string, args ...any) {
	text := human.Clean(fmt.Sprintf(format, args...)) // it may have words of a host
	if u.Notice != nil {
		u.Notice(text)
	}
	if what, warning := strings.CutPrefix(text, "warning: "); warning {
		u.log.Warn(what)
	} else {
		u.log.Info(text)
	}
}

// DefaultWorkdir is the work directory where none is named.
const DefaultWorkdir = ".kubexm"

// Which names the cluster, and the work directory where it is not the default one, on a command line.
func (a *App) Which(r Request) string { return a.use(r, Observer{}).Which() }

// Which is App.Which of the use.
func (u *use) Which() string { return u.which() + u.where() }

func (u *use) which() string {
	if u.File == "-" { // what was read there is not there a second time
		if _, conf, err := u.app.use(u.Request, Observer{}).read(); err == nil {
			return " --name " + runner.Quote(conf.Metadata.Name)
		}
	}
	if u.File != "" {
		return " -f " + runner.Quote(u.File)
	}
	return " --name " + runner.Quote(u.Name)
}

func (u *use) where() string {
	if u.app.Workdir == DefaultWorkdir {
		return ""
	}
	return " --workdir " + runner.Quote(u.app.Workdir)
}

// Clusters are those that are known in the work directory.
func (a *App) Clusters() ([]string, error) {
	entries, err := os.ReadDir(a.Workdir)
	if missing(err) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if store.Exists(filepath.Join(a.Workdir, e.Name())) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}

// Config reads and checks the configuration, and returns where it is. No host is
// asked, no password is looked up.
func (a *App) Config(r Request, o Observer) (file string, conf *v1alpha1.Cluster, err error) {
	d, conf, err := a.use(r, o).read()
	return d.file, conf, err
}

// document is where a configuration comes from.
type document struct {
	file  string
	given []byte // its text, where that is in the records or was read from standard input
	back  string // the file that is to have that text; empty: none
	found []byte // the text that an edit of that file was made in
	final []byte // the text that the file gets instead, where given is on the way to it; nil: there is none
}

// read is Config that also returns where the configuration comes from.
func (u *use) read() (d document, conf *v1alpha1.Cluster, err error) {
	if d, err = u.document(); err == nil && u.Edit != nil {
		d, err = u.edited(d)
	}
	if err != nil {
		return d, nil, err
	}
	var warnings config.Errors
	switch {
	case d.given == nil:
		conf, warnings, err = config.Load(d.file)
	case u.File == "-" && u.Revision == "", u.Edit != nil, u.in != nil:
		conf, warnings, err = config.Parse(d.file, d.given)
	default:
		conf, warnings, err = config.ParseRecorded(d.file, d.given)
	}
	u.warn(warnings)
	if err == nil && u.Name != "" && conf.Metadata.Name != u.Name {
		err = fault.Exit(fmt.Errorf("%s describes cluster %q, --name says %q", d.file, conf.Metadata.Name, u.Name), fault.ExitUsage)
	}
	return d, conf, err
}

func (u *use) warn(warnings config.Errors) {
	for _, w := range warnings {
		u.notice("warning: %s", w)
	}
}

// document finds the configuration: that of the revision asked for, else the file asked for, else that of the
// name, else the one the cluster was last made with.
func (u *use) document() (document, error) {
	if u.in != nil {
		return *u.in, nil
	}
	if u.Revision != "" {
		return u.earlier()
	}
	if u.File == "-" {
		return document{file: "standard input", given: u.Given}, nil
	}
	if u.File != "" {
		return document{file: u.File}, nil
	}
	if u.Name == "" {
		return document{}, fault.Exit(errors.New("no cluster is named: give --name NAME (for conf/NAME/cluster.yaml) or -f FILE"), fault.ExitUsage)
	}
	file := filepath.Join("conf", u.Name, "cluster.yaml")
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return document{file: file}, nil
	}
	is, err := u.app.applied(u.Name)
	if is == nil || len(is.Given) == 0 {
		return document{file: file}, err
	}
	return document{file: "configuration of " + is.Run.ID, given: is.Given}, nil
}

// applied is the configuration that a cluster was last made with; nil where there is none.
func (a *App) applied(name string) (*store.Revision, error) {
	records, err := a.openRecords(filepath.Join(a.Workdir, name), false, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is no cluster
	}
	if err != nil {
		return nil, err
	}
	defer records.Close()
	return records.Applied()
}

// resolveSource reads the secrets of a source, which only what fetches needs.
func (u *use) resolveSource(ctx context.Context, conf *v1alpha1.Cluster) (v1alpha1.Source, error) {
	src, warnings, err := config.ResolveSource(ctx, conf, u.local)
	u.warn(warnings)
	return src, err
}

// slowExec is after how long it is told which command of a configuration is waited for.
const slowExec = 5 * time.Second

// local runs a command line of the configuration on this machine.
func (u *use) local(ctx context.Context, line string) (string, error) {
	defer time.AfterFunc(slowExec, func() { u.notice("waiting for a command of the configuration that gives a secret") }).Stop()
	return runner.New("control", connector.Local()).User(ctx, line, nil)
}

// session is a cluster, as its configuration describes it.
type session struct {
	*use
	document
	config *v1alpha1.Cluster
	dir    string // of the cluster on the control machine
	leaves []leaver
	known  map[string]*runner.Facts // of hosts, as they were last seen before; nil: nobody has looked
	exiles map[string]string        // by note: the ID of a machine that was given up
}

// machines are the hosts of the configuration, and those that leave the cluster.
func (s *session) machines() (all []*v1alpha1.Host) {
	for i := range s.config.Spec.Hosts {
		all = append(all, &s.config.Spec.Hosts[i])
	}
	for i := range s.leaves {
		all = append(all, &s.leaves[i].Host)
	}
	return all
}

// open loads the configuration. It asks no host.
func (a *App) open(ctx context.Context, r Request, o Observer) (*session, error) {
	s := &session{use: a.use(r, o)}
	err := s.checkSkipped()
	if err != nil {
		return nil, err
	}
	if s.document, s.config, err = s.read(); err != nil {
		return nil, err
	}
	warnings, err := config.ResolveSecrets(ctx, s.config, s.local)
	s.warn(warnings)
	if err != nil {
		return nil, fault.Exit(err, fault.ExitUsage)
	}
	work, err := filepath.Abs(a.Workdir)
	if err != nil {
		return nil, fmt.Errorf("finding the work directory: %w", err)
	}
	s.dir = filepath.Join(work, s.config.Metadata.Name)
	return s, nil
}
