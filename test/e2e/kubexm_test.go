//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// event is a line of `-o json` that tells of a step.
type event struct {
	Type   string `json:"type"`
	Host   string `json:"host"`
	Task   string `json:"task"`
	What   string `json:"what"`
	Status string `json:"status"`
	Text   string `json:"text"`
	Error  string `json:"error"`
}

// result is the last line of `-o json`.
type result struct {
	Cluster    string   `json:"cluster"`
	Run        string   `json:"run"`
	Dir        string   `json:"dir"`
	Kubeconfig string   `json:"kubeconfig"`
	Missing    []string `json:"missing"`
	Result     string   `json:"result"`
	ExitCode   int      `json:"exitCode"`
	RoundTrips map[string]int64
	Summary    struct{ Total, OK, Changed, Pending, Failed, Skipped, Restored int }
	Errors     []struct {
		What, Error, Advice string
		Hosts               []string
	}
}

// process is kubexm at work.
type process struct {
	cmd    *exec.Cmd
	begin  time.Time
	stdout bytes.Buffer // what was not JSON
	stderr bytes.Buffer
	events []event
	result *result
	read   chan struct{} // closed when all output was read
	each   func(n int, e event)
}

// outcome is how kubexm ended.
type outcome struct {
	*process
	code int // 128+signal when a signal ended it
	took time.Duration
}

// text is all that kubexm said to people.
func (o *outcome) text() string { return o.stdout.String() + o.stderr.String() }

// start starts kubexm; each, when not nil, is told every event and its number,
// from 1, before the next one is read.
func (c *cluster) start(t *testing.T, each func(n int, e event), args ...string) *process {
	t.Helper()
	args = append([]string{the.program, "-f", c.file, "--workdir", c.work}, args...)
	if c.isolated {
		args = append(the.bed.Inside(), args...)
	}
	p := &process{cmd: exec.Command(args[0], args[1:]...), begin: time.Now(), read: make(chan struct{}), each: each}
	p.cmd.Env = append(p.cmd.Environ(), c.env...)
	p.cmd.Stderr = &p.stderr
	// The program's own end of the pipe is the last one: output ends when it ends.
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go p.follow(out)
	return p
}

func (p *process) follow(out io.Reader) {
	defer close(p.read)
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		p.line(line)
		if err != nil {
			return
		}
	}
}

func (p *process) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		p.stdout.Write(line)
		return
	}
	switch e.Type {
	case "result":
		p.result = &result{}
		if err := json.Unmarshal(line, p.result); err != nil {
			p.result = nil
		}
	case "event":
		p.events = append(p.events, e)
		if p.each != nil {
			p.each(len(p.events), e)
		}
	default:
		p.stdout.Write(line)
	}
}

// signal sends a signal; a process that has ended by then is no error.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *process) wait(t *testing.T) *outcome {
	t.Helper()
	<-p.read
	err := p.cmd.Wait()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	o := &outcome{process: p, took: time.Since(p.begin), code: p.cmd.ProcessState.ExitCode()}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		o.code = 128 + int(status.Signal())
	}
	return o
}

// run runs kubexm to its end.
func (c *cluster) run(t *testing.T, args ...string) *outcome {
	t.Helper()
	return c.start(t, nil, args...).wait(t)
}

// resume goes on with a run that was killed, or runs it again where it had just ended well, or not begun.
func (c *cluster) resume(t *testing.T, args ...string) *outcome {
	t.Helper()
	o := c.run(t, append(args, "--resume")...)
	if o.code == fault.ExitUsage && strings.Contains(strings.Join(strings.Fields(o.text()), " "), "to resume") {
		o = c.run(t, args...)
	}
	return o.ok(t)
}

// ok fails the test unless kubexm ended well.
func (o *outcome) ok(t *testing.T) *outcome {
	t.Helper()
	if o.code != 0 {
		t.Fatalf("%s: exit code %d\n%s", strings.Join(o.cmd.Args, " "), o.code, o.text())
	}
	return o
}

// fails reports an error unless kubexm ended with the exit code and said all of texts.
func (o *outcome) fails(t *testing.T, code int, texts ...string) *outcome {
	t.Helper()
	all := o.text()
	t.Logf("exit code %d; it said:\n%s", o.code, all)
	if o.code != code {
		t.Errorf("want exit code %d", code)
	}
	flat := strings.Join(strings.Fields(all), " ") // lines are wrapped for people
	for _, want := range texts {
		if !strings.Contains(flat, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	return o
}

// create makes the cluster and returns how that went.
func (c *cluster) create(t *testing.T, more ...string) *outcome {
	t.Helper()
	verb := "create"
	if c.built {
		verb = "install"
		c.run(t, "preflight", "-o", "json").ok(t) // sees what the machines are like
		c.run(t, "build", "cluster", "-o", "json").ok(t)
	}
	return c.run(t, append([]string{verb, "cluster", "--yes", "-o", "json"}, more...)...)
}

// remove takes the cluster off the machines.
func (c *cluster) remove(t *testing.T) *outcome {
	t.Helper()
	return c.run(t, "delete", "cluster", "--yes", "-o", "json").ok(t)
}
