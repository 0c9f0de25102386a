package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/progress"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// useCase runs a pipeline.
type useCase func(context.Context, app.Request, app.Observer) (*app.Result, error)

// caught is the use case with faults of kubexm itself for errors: how it ended is told all the same.
func (use useCase) caught(ctx context.Context, r app.Request, o app.Observer) (res *app.Result, err error) {
	defer fault.Caught(&err)
	return use(ctx, r, o)
}

// view shows a run while it lasts.
type view interface {
	Event(engine.Event)
	Notice(text string)
	End()
}

// operation is one run of a pipeline, as its user sees it.
type operation struct {
	*program
	path   string // of the command
	again  string // the command that goes on with it
	format string
	stop   chan struct{}
	state  *progress.State    // nil: the run has not begun
	view   view               // nil: nothing is shown
	events *engine.Subscriber // what view is to show
	shown  sync.WaitGroup
	diffs  []engine.Event // what a dry run found
}

// operate runs a pipeline: shows its progress, stops it on Ctrl-C, tells how it ended.
func (p *program) operate(cmd *cobra.Command, format string, use useCase) error {
	// Nobody may read what is written (| head): the work goes on all the same.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	op := &operation{program: p, path: cmd.CommandPath(), again: again(cmd), format: format, stop: make(chan struct{})}
	r := p.request
	r.Rollback = engine.Rollback(p.rollback.value)
	o := p.observer()
	o.Notice, o.Begin, o.Event, o.Stop, o.MayRestart = op.notice, op.begin, op.event, op.stop, p.mayRestart
	o.Log = nil // it goes to a file
	res, err := use.caught(cmd.Context(), r, o)
	p.interrupt.clean.Store(nil)
	op.end()
	if err != nil && op.state != nil {
		err = &runError{err, res, p.app.Which(p.request), op.resume()}
	}
	if format == "json" {
		p.answered = true
		return errors.Join(err, op.result(res, err))
	}
	if op.state != nil {
		op.conclude(res, err)
	}
	return err
}

// end lets the view show what is left of a run.
func (op *operation) end() {
	if op.view != nil {
		op.events.Close()
		op.shown.Wait()
		op.view.End()
	}
}

// begin shows a run from now on; what is asked for may be several, one after the other.
func (op *operation) begin(cluster string, g *plan.ExecutionGraph) {
	op.end()
	op.state = progress.NewState(g, time.Now())
	switch {
	case op.format == "json":
		op.view = &jsonLines{json.NewEncoder(op.out), op.program}
	case op.quiet:
	case terminal(op.out):
		op.view = progress.NewScreen(progress.Terminal{Out: op.out, Notices: op.err, Size: func() (int, int) { return size(op.out) }, Style: style.New(op.colors(op.out))},
			strings.TrimPrefix(op.path, "kubexm ")+" "+cluster, op.state)
	case op.request.DryRun: // its output is what would change
		op.view = progress.NewPlain(op.err, op.err, op.state)
	default:
		op.view = progress.NewPlain(op.out, op.err, op.state)
	}
	if op.view != nil {
		op.show()
	}
	stop := op.halt
	op.interrupt.clean.Store(&stop)
}

// behind is how many events the reader of the output may be behind before it misses some.
const behind = 10_000

// show lets the view show events at the pace of whoever reads it: the run does not wait.
func (op *operation) show() {
	op.events = engine.NewSubscriber(behind)
	op.shown.Go(func() {
		for ev, ok := op.events.Next(context.Background()); ok; ev, ok = op.events.Next(context.Background()) {
			op.view.Event(ev)
		}
	})
}

func (op *operation) event(ev engine.Event) {
	op.state.Apply(ev)
	if ev.Status == engine.Pending {
		op.diffs = append(op.diffs, ev)
	}
	if op.view != nil {
		op.events.Put(ev)
	}
}

// notice tells what goes on aside from events.
func (op *operation) notice(text string) {
	if op.view != nil {
		op.view.Notice(text)
	} else {
		op.program.notice(text)
	}
}

// halt stops cleanly.
func (op *operation) halt() {
	text := fmt.Sprintf("stopping: letting %s finish, and machines that are being changed; press again to stop at once", human.Count(op.state.Running(), "running step"))
	if resume := op.resume(); resume != "" {
		text += "\nresume with: " + resume
	}
	op.notice(text)
	close(op.stop)
}

// resume is the command that goes on with this run.
func (op *operation) resume() string {
	if op.request.DryRun {
		return ""
	}
	return op.again
}

// again is the command line that was given, to go on with what it began.
func again(cmd *cobra.Command) string {
	text, args := cmd.CommandPath(), cmd.Flags().Args()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch value := f.Value.String(); {
		case f.Value.Type() == "bool" && value == "true", f.Name == "export" && (value == app.BundleDefault || slices.Contains(args, value)):
			text += " --" + f.Name
		case f.Value.Type() == "stringSlice":
			text += " --" + f.Name + "=" + runner.Quote(strings.Trim(value, "[]"))
		default:
			text += " --" + f.Name + "=" + runner.Quote(value)
		}
	})
	if f := cmd.Flags().Lookup("resume"); f != nil && f.Value.String() == "false" {
		text += " --resume"
	}
	for _, a := range args {
		text += " " + runner.Quote(a)
	}
	return text
}

// runError is a run that failed or was stopped.
type runError struct {
	error
	result *app.Result // may be nil
	which  string      // cluster, on a command line
	resume string      // the command that goes on; empty for a dry run
}

func (e *runError) Unwrap() error { return e.error }

// jsonLines writes a run for programs: events, then the result.
type jsonLines struct {
	enc *json.Encoder
	p   *program
}

func (j *jsonLines) Event(ev engine.Event) {
	_ = j.enc.Encode(eventLine(ev)) //nolint:errchkjson // that nobody reads any more does not stop the run
}

func (j *jsonLines) Notice(text string) { j.p.notice(text) }

func (j *jsonLines) End() {}

// typed is an event as a line of JSON.
type typed struct {
	Type string `json:"type"`
	engine.Event
	Duration *int  `json:"duration,omitempty"` // nil: leaves the event's own out
	Millis   int64 `json:"duration_ms,omitempty"`
}

func eventLine(ev engine.Event) typed {
	return typed{Type: "event", Event: ev, Millis: ev.Duration.Milliseconds()}
}

// jsonLine writes a value as a line of JSON of a type.
func (p *program) jsonLine(kind string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding the output: %w", err)
	}
	_, err = fmt.Fprintf(p.out, `{"type":%q,%s`+"\n", kind, strings.TrimPrefix(string(text), "{"))
	return err
}

// result writes the last line of JSON.
func (p *program) result(res *app.Result, err error) error {
	line := struct {
		Type string `json:"type"`
		*app.Result
		Elapsed  *int      `json:"elapsed,omitempty"` // nil: leaves the result's own out
		Millis   int64     `json:"duration_ms,omitempty"`
		Outcome  string    `json:"result"` // ok, failed, interrupted
		ExitCode int       `json:"exitCode"`
		Errors   []problem `json:"errors,omitempty"`
	}{Type: "result", Result: res, Outcome: app.Outcome(err), ExitCode: fault.ExitCode(err), Errors: problems(err)}
	if res != nil {
		line.Millis = res.Elapsed.Milliseconds()
	}
	err = json.NewEncoder(p.out).Encode(line)
	if errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}
