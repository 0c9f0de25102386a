package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/util/durable"
)

// runLog is what a use of a cluster tells for programs: lines of JSON. A run has them in a file of its own; what is told before it begins is kept
// for that.
type runLog struct {
	*slog.Logger
	run  atomic.Pointer[store.Run] // whose log it is, as soon as there is one
	mu   sync.Mutex
	kept bytes.Buffer
	to   io.WriteCloser // nil: not yet, or not any more
	over bool
}

// keptLogs is how many runs have a log: the newest.
const keptLogs = 100

// newLog makes a log of everything, commands on hosts included, or of what happens.
func newLog(everything bool) *runLog {
	l, level := &runLog{}, slog.LevelInfo
	if everything {
		level = slog.LevelDebug
	}
	l.Logger = slog.New(handler{slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey:
			a.Key = "timestamp"
		case slog.MessageKey:
			a.Key = "message"
		}
		return a
	}}), l})
	return l
}

// handler adds the run to what is logged.
type handler struct {
	slog.Handler
	log *runLog
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if run := h.log.run.Load(); run != nil {
		r.AddAttrs(slog.String("run", run.ID), slog.String("pipeline", run.Pipeline))
	}
	return h.Handler.Handle(ctx, r)
}

// mostKept is how many bytes are kept until there is a file.
const mostKept = 16 << 20

func (l *runLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.to != nil:
		return l.to.Write(line)
	case !l.over && l.kept.Len() < mostKept:
		l.kept.Write(line)
	}
	return len(line), nil
}

// open gives the log a place.
func (l *runLog) open(to io.WriteCloser) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
	_, err := l.kept.WriteTo(to)
	return err
}

func (l *runLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to == nil {
		return nil
	}
	to := l.to
	l.to, l.over = nil, true
	return to.Close()
}

// logFile is where a run has its log.
func (s *session) logFile(run store.Run) string { return filepath.Join(s.dir, "runs", run.ID+".jsonl") }

// logRun gives a run its log, and removes those of runs long ago. A run can do without one.
func (w *work) logRun(run store.Run) error {
	path := w.logFile(run)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	}
	if err != nil {
		return durable.Advise(fmt.Errorf("making the log of the run: %w", err))
	}
	w.ends = append(w.ends, func() { _ = w.log.close() })
	w.log.run.Store(&run)
	old, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.jsonl"))
	slices.Sort(old) // IDs begin with the time
	for _, path := range old[:max(0, len(old)-keptLogs)] {
		_ = os.Remove(path) // the next run tries again
	}
	return w.log.open(f)
}

// leaveLog writes what was logged to a file, where no run began that has its own, and all of it was asked for.
func (w *work) leaveLog() {
	path := filepath.Join(w.dir, "runs", "debug.jsonl")
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	if !w.Debug || w.log.kept.Len() == 0 {
		return
	}
	if err := durable.Write(path, w.log.kept.Bytes()); err == nil && w.Notice != nil {
		w.Notice("log: " + path)
	}
}

// event logs what happens to a step.
func (l *runLog) event(ev engine.Event) {
	level := slog.LevelInfo
	switch ev.Status {
	case engine.Started, engine.Progress, engine.OK:
		level = slog.LevelDebug
	case engine.Retry:
		level = slog.LevelWarn
	case engine.Failed:
		level = slog.LevelError
	}
	if !l.Enabled(context.Background(), level) {
		return
	}
	_, rest, _ := strings.Cut(ev.Task, "/")
	module, task, _ := strings.Cut(rest, "/")
	attrs := []slog.Attr{slog.String("module", module), slog.String("task", task), slog.String("step", ev.What), slog.String("node", ev.Host), slog.String("status", string(ev.Status))}
	if ev.Duration > 0 {
		attrs = append(attrs, slog.Int64("duration_ms", ev.Duration.Milliseconds()))
	}
	for key, text := range map[string]string{"text": ev.Text, "error": ev.Error, "advice": ev.Advice} {
		if text != "" {
			attrs = append(attrs, slog.String(key, text))
		}
	}
	l.LogAttrs(context.Background(), level, fmt.Sprintf("%s: %s", ev.What, ev.Status), attrs...)
}

// logged is a connector that tells of each command. What a command reads and answers is not told: it may be secret.
type logged struct {
	connector.Connector
	host string
	log  *runLog
}

// Unwrap is the connector without the log.
func (l *logged) Unwrap() connector.Connector { return l.Connector }

func (l *logged) Exec(ctx context.Context, c connector.Cmd) error {
	begun := time.Now()
	err := l.Connector.Exec(ctx, c)
	l.tell("command", c.Line, begun, err)
	return err
}

func (l *logged) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	begun := time.Now()
	conn, err := l.Connector.Dial(ctx, network, address)
	l.tell("connection", network+" "+address, begun, err)
	return conn, err
}

func (l *logged) Listen(ctx context.Context) (net.Listener, error) {
	begun := time.Now()
	listener, err := l.Connector.Listen(ctx)
	l.tell("listener", "on its loopback", begun, err)
	return listener, err
}

func (l *logged) tell(what, line string, begun time.Time, err error) {
	attrs := []any{"node", l.host, what, line, "duration_ms", time.Since(begun).Milliseconds()}
	if exit, ok := errors.AsType[*connector.ExitError](err); ok {
		attrs = append(attrs, "exit", exit.Code, "stderr", exit.Stderr)
	} else if err != nil {
		attrs = append(attrs, "error", err.Error())
	}
	l.log.Debug(what, attrs...)
}
