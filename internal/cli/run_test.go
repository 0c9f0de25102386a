package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/pkg/plan"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// fakeRun is a use case that goes as it is told.
type fakeRun struct {
	steps   []engine.Event // how each step ends
	errs    []error
	missing []string // hosts that were left out
	during  func(app.Request, app.Observer)
}

func (f fakeRun) run(_ context.Context, r app.Request, o app.Observer) (*app.Result, error) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local) //nolint:gosmopolitan // lines show local time
	g := &plan.ExecutionGraph{Name: "create"}
	for i := range f.steps {
		ev := &f.steps[i]
		ev.Time, ev.Task = at, "create/test"
		ev.Node = plan.ID(fmt.Sprintf("%s/%d/%s@%s", ev.Task, i, ev.What, ev.Host))
		g.Nodes = append(g.Nodes, plan.Node{ID: ev.Node, Task: ev.Task, Host: ev.Host, What: ev.What, Kind: "step"})
	}
	o.Begin("prod", g)
	res := &app.Result{Cluster: "prod", Missing: f.missing, Elapsed: 61 * time.Second}
	if !r.DryRun {
		res.Run = "20260102T030405.000Z-create"
	}
	for _, ev := range f.steps {
		begun := ev
		begun.Status, begun.Duration, begun.Error, begun.Diff = engine.Started, 0, "", ""
		o.Event(begun)
		if f.during != nil {
			f.during(r, o)
		}
		o.Event(ev)
		res.Summary.Total++
		switch ev.Status {
		case engine.Changed:
			res.Summary.Changed++
		case engine.OK:
			res.Summary.OK++
		case engine.Pending:
			res.Summary.Pending++
		case engine.Failed:
			res.Summary.Failed++
		case engine.Skipped:
			res.Summary.Skipped++
		default:
		}
	}
	err := errors.Join(f.errs...)
	if err == nil {
		res.Kubeconfig = ".kubexm/prod/admin.conf"
	}
	return res, err
}

// operate runs it as "kubexm create cluster" does with some flags, and reports as Main does.
func (f fakeRun) operate(t *testing.T, p *program, format string, flags ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p.out, p.err = &out, &errs
	cmd, flags, err := p.root().Find(append([]string{"create", "cluster", "--name=prod"}, flags...))
	if err = errors.Join(err, cmd.ParseFlags(flags)); err != nil {
		t.Fatal(err)
	}
	cmd.SetContext(t.Context())
	if err := p.operate(cmd, format, f.run); err != nil {
		p.report(err)
	}
	return out.String(), errs.String()
}

// TestAgain has command lines, and how they are repeated: each does the same once more.
func TestAgain(t *testing.T) {
	for given, want := range map[string]string{
		"delete cluster -f c.yaml -y":                 "kubexm delete cluster --file=c.yaml --yes",
		"install cluster --cluster=a --resume":        "kubexm install cluster --name=a --resume",
		"download cluster --name=a --export":          "kubexm download --export --name=a cluster",
		"download --export --k8s=v1.37.1,v1.36.4 b.z": "kubexm download --export --k8s=v1.37.1,v1.36.4 b.z",
		"registry push --name=a x/y:1 x/z:2":          "kubexm registry push --name=a x/y:1 x/z:2",
	} {
		for _, line := range []string{given, strings.TrimPrefix(want, "kubexm ")} {
			cmd, flags, err := (&program{}).root().Find(strings.Fields(line))
			if err = errors.Join(err, cmd.ParseFlags(flags), cmd.ValidateArgs(cmd.Flags().Args())); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			if got := again(cmd); got != want {
				t.Errorf("%s: again is %s", line, got)
			}
		}
	}
}

func both(stdout, stderr string) string { return stdout + "--- stderr\n" + stderr }

func step(status engine.Status, host, what string, took time.Duration) engine.Event {
	return engine.Event{Status: status, Host: host, What: what, Duration: took}
}

func failed(host, what string, err error) (engine.Event, error) {
	ev := step(engine.Failed, host, what, time.Second)
	ev.Error = err.Error()
	return ev, &engine.Error{Host: host, What: what, Err: err}
}

var wellEnded = []engine.Event{
	step(engine.OK, "control", "download etcd", 0), step(engine.Changed, "node1", "service etcd", 3*time.Second),
	step(engine.Changed, "node2", "service kubelet", 41*time.Second), step(engine.Changed, "node1", "swap off", 300*time.Millisecond),
}

func TestDone(t *testing.T) {
	golden.Equal(t, both(fakeRun{steps: wellEnded}.operate(t, &program{}, "text")))
}

// TestMissing has hosts that were left out.
func TestMissing(t *testing.T) {
	f := fakeRun{steps: wellEnded, missing: []string{"node7", "node9"}}
	p := &program{}
	text := both(f.operate(t, p, "text", "--allow-missing"))
	out, _ := f.operate(t, p, "json", "--allow-missing")
	f.errs = []error{errors.New("it broke")}
	_, failed := f.operate(t, p, "text", "--allow-missing")
	golden.Equal(t, text+"--- json\n"+out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]+"--- failed\n"+failed)
}

func TestQuiet(t *testing.T) {
	golden.Equal(t, both(fakeRun{steps: wellEnded}.operate(t, &program{}, "text", "--quiet")))
}

func TestNothingToChange(t *testing.T) {
	golden.Equal(t, both(fakeRun{steps: wellEnded[:1]}.operate(t, &program{}, "text")))
}

// TestJSON checks that each line is JSON, and what its last one says.
func TestJSON(t *testing.T) {
	bad, err := failed("node1", "service etcd", fault.Advise(errors.New("it ended"), "look at its log"))
	for name, f := range map[string]fakeRun{"done": {steps: wellEnded}, "failed": {steps: []engine.Event{bad}, errs: []error{err}}} {
		t.Run(name, func(t *testing.T) {
			out, errs := f.operate(t, &program{}, "json")
			lines := strings.Split(strings.TrimSpace(out), "\n")
			for i, line := range lines {
				var v struct{ Type string }
				if err := json.Unmarshal([]byte(line), &v); err != nil || (v.Type == "result") != (i == len(lines)-1) {
					t.Errorf("line %d: %v: %s", i, err, line)
				}
			}
			golden.Equal(t, both(lines[len(lines)-1]+"\n", errs))
		})
	}
}

func TestDryRun(t *testing.T) {
	var steps []engine.Event
	for _, host := range []string{"node1", "node2", "node3"} {
		hosts := step(engine.Pending, host, "block in /etc/hosts", 0)
		hosts.Diff = "--- /etc/hosts\n+++ /etc/hosts\n@@ -1,1 +1,2 @@\n 127.0.0.1\tlocalhost\n+192.0.2.1 node1\n"
		steps = append(steps, hosts)
	}
	swap := step(engine.Pending, "node3", "swap off", 0)
	swap.Diff = "swap on /dev/sda2 -> off"
	golden.Equal(t, both(fakeRun{steps: append(steps, swap)}.operate(t, &program{}, "text", "--dry-run")))
}

// TestFailed has all that an error tells, and the same error on many hosts.
func TestFailed(t *testing.T) {
	f := fakeRun{steps: wellEnded}
	add := func(ev engine.Event, err error) {
		f.steps, f.errs = append(f.steps, ev), append(f.errs, err)
	}
	exit := connector.NewExitError("systemctl restart etcd", 1, "Job for etcd.service failed.\nSee \"journalctl -xeu etcd.service\"\x1b[2J for details.")
	add(failed("node1", "service etcd", fault.Advise(fmt.Errorf("restarting etcd: %w", exit), "read etcd's log: journalctl -u etcd")))
	for i := 1; i <= 20; i++ {
		host := fmt.Sprintf("node%d", i)
		add(failed(host, "upload kubelet", fault.Advise(fmt.Errorf("writing to %s (root@192.0.2.%d:22): no space left on device", host, i), "make room in /usr/local/bin")))
	}
	add(failed("node3", "kubeadm join", errors.New("token is not valid")))
	f.steps = append(f.steps, step(engine.Skipped, "node3", "wait for node node3", 0))
	golden.Equal(t, both(f.operate(t, &program{}, "text", "--skip-preflight", "os,memory", "--no-rollback", "--parallel", "4", "--workdir", "a b")))
}

// TestInterrupted stops in the middle: what was cut off is no error of its own.
func TestInterrupted(t *testing.T) {
	p := &program{}
	cut, err := failed("node1", "kubeadm init", fmt.Errorf("running kubeadm: %w", context.Canceled))
	f := fakeRun{
		steps: append(wellEnded[:2:2], cut, step(engine.Skipped, "node2", "kubeadm join", 0)),
		errs:  []error{fault.Exit(errors.Join(app.ErrStopped, err), fault.ExitInterrupted)},
	}
	f.during = func(_ app.Request, o app.Observer) {
		if stop := p.interrupt.clean.Swap(nil); stop != nil {
			(*stop)()
			<-o.Stop
		}
	}
	golden.Equal(t, both(f.operate(t, p, "text")))
}

// TestInterruptedDryRun has nothing to go on with.
func TestInterruptedDryRun(t *testing.T) {
	p := &program{}
	f := fakeRun{steps: wellEnded[:1]}
	f.during = func(app.Request, app.Observer) { (*p.interrupt.clean.Load())() }
	if _, stderr := f.operate(t, p, "text", "--dry-run"); !strings.Contains(stderr, "press again to stop at once") || strings.Contains(stderr, "resume") {
		t.Error(stderr)
	}
}

// unread is a program whose run goes on when nobody reads its output any more.
func unread() {
	p := &program{out: os.Stdout, err: os.Stderr}
	f := fakeRun{steps: wellEnded}
	f.during = func(app.Request, app.Observer) {
		for {
			if _, err := fmt.Println(`{"type":"event"}`); err != nil {
				return
			}
		}
	}
	if err := p.operate(&cobra.Command{Use: "kubexm"}, "json", f.run); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "ended")
}

func TestRollbackFlag(t *testing.T) {
	for want, flags := range map[engine.Rollback][]string{engine.RollbackHost: nil, engine.RollbackTask: {"--rollback=task"}} {
		var got engine.Rollback
		f := fakeRun{steps: wellEnded[:1], during: func(r app.Request, _ app.Observer) { got = r.Rollback }}
		if f.operate(t, &program{}, "text", flags...); got != want {
			t.Errorf("with %v it is %q", flags, got)
		}
	}
}

// TestSlowReader has an output that nobody reads before the run is over: the run does not wait for it.
func TestSlowReader(t *testing.T) {
	from, to := io.Pipe()
	p, over, read := &program{out: to, err: io.Discard}, make(chan struct{}), make(chan []byte)
	go func() {
		<-over
		text, _ := io.ReadAll(from)
		read <- text
	}()
	err := p.operate(&cobra.Command{Use: "kubexm"}, "json", func(ctx context.Context, r app.Request, o app.Observer) (*app.Result, error) {
		defer close(over)
		return fakeRun{steps: wellEnded}.run(ctx, r, o)
	})
	_ = to.Close()
	if text := <-read; err != nil || bytes.Count(text, []byte("\n")) != 2*len(wellEnded)+1 {
		t.Errorf("%v: read %s", err, text)
	}
}

// TestPanic meets a bug in kubexm: nobody is to take it for wrong usage, before which nothing was touched.
func TestPanic(t *testing.T) {
	var told bytes.Buffer
	p := &program{err: &told} // out is nil
	_, err := p.execute(t.Context(), []string{"version"})
	p.report(err)
	if fault.ExitCode(err) != fault.ExitFailed || !strings.Contains(told.String(), "error: a bug in kubexm: runtime error") || !strings.Contains(told.String(), "next:    report it") {
		t.Errorf("exit code %d: %s", fault.ExitCode(err), told.String())
	}
}

// TestInterrupt sends signals: the first stops cleanly, the second at once.
func TestInterrupt(t *testing.T) {
	var i interrupt
	ctx, stop := i.watch(t.Context())
	defer stop()
	clean := make(chan struct{})
	f := func() { close(clean) }
	i.clean.Store(&f)
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-clean
	if ctx.Err() != nil {
		t.Fatal("the first signal ended the context")
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}
