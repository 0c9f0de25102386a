package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

func (p *program) execCommand() *cobra.Command {
	var c app.Command
	cmd := p.ofCluster(&cobra.Command{
		Use: "exec", Short: "Run a command on the machines of a cluster", GroupID: groupLook,
		Long: `Run a command on the machines of a cluster, side by side (64 at a time), as root. --host and --role choose some of them.
One word is a command line for the machine's POSIX shell; several words are a program and its arguments.

Each line of output is shown with the name of its machine, unless there is only one: then
the command reads standard input, and what is not shown on a terminal stays as it is. The exit code is 1 when the command failed on a machine.`,
		Example: `  kubexm exec --name prod -- uptime
  kubexm exec --name prod --role master -- 'journalctl -u kubelet --since -5m | grep -c error'
  kubexm exec --name prod --host node1,node2 -o json -- systemctl is-active kubelet
  kubexm exec --name prod --host node1 -- tee /etc/motd < motd`,
	})
	ofCluster := cmd.Args
	cmd.Use += " -- COMMAND [ARGUMENT...]"
	var words []string
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		if dash < 0 || dash == len(args) {
			return usage(fault.Advise(errors.New("no command is given"), "put it behind --: kubexm exec --name NAME -- uptime"))
		}
		words = args[dash:]
		return ofCluster(cmd, args[:dash])
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.Hosts, "host", nil, "`names` of the machines")
	f.StringSliceVar(&c.Roles, "role", nil, "`roles` of the machines: "+strings.Join(roleNames(), ", "))
	f.BoolVar(&c.Login, "login-user", false, "run it as the login user, not as root")
	complete(cmd, "host", p.hostNames)
	complete(cmd, "role", roleNames)
	p.keysFlag(cmd)
	format := output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, r := range c.Roles {
			if !slices.Contains(roleNames(), r) {
				return usage(fault.Advise(fmt.Errorf("there is no role %q", r), "choose from: "+strings.Join(roleNames(), ", ")))
			}
		}
		c.Line = words[0]
		if len(words) > 1 {
			c.Line = runner.Quote(words...)
		}
		return p.exec(cmd.Context(), c, format.value)
	}
	return cmd
}

func roleNames() (names []string) {
	for _, r := range v1alpha1.Roles() {
		names = append(names, string(r))
	}
	return names
}

// hostNames are the hosts of the cluster that is named so far.
func (p *program) hostNames() (names []string) {
	if p.request.File == "-" && p.request.Given == nil || p.chosen(&cobra.Command{}, nil) != nil { // completion must not wait for input
		return nil
	}
	_, conf, _ := p.app.Config(p.request, app.Observer{})
	if conf != nil {
		for _, h := range conf.Spec.Hosts {
			names = append(names, h.Name)
		}
	}
	return names
}

func (p *program) exec(ctx context.Context, c app.Command, format string) error {
	_, conf, err := p.app.Config(p.request, app.Observer{})
	if err != nil {
		return err
	}
	of := 0
	for _, h := range conf.Spec.Hosts {
		if c.On(&h) {
			of++
		}
	}
	one := of == 1
	if one && !terminal(p.in) {
		c.In = p.in
	}
	heard := map[string]*outputs{}
	var mu sync.Mutex
	c.Streams = func(host string) (stdout, stderr io.Writer) {
		mu.Lock()
		defer mu.Unlock()
		o := &outputs{}
		heard[host] = o
		if format == "json" {
			return &o.out, &o.err
		}
		prefix := ""
		if !one {
			prefix = style.New(p.colors(p.out)).Dim.String(host) + "  "
		}
		o.lines = [2]lines{{to: p.out, mu: &mu, prefix: prefix, raw: one && !terminal(p.out)}, {to: p.err, mu: &mu, prefix: prefix, raw: one && !terminal(p.err)}}
		return &o.lines[0], &o.lines[1]
	}
	all, err := p.app.Exec(ctx, p.request, p.observer(), c)
	for _, o := range heard {
		o.lines[0].end()
		o.lines[1].end()
	}
	if all == nil || format != "json" {
		return cmp.Or(err, errors.Join(failures(all)...))
	}
	type result struct {
		Host   string `json:"host"`
		Code   int    `json:"exitCode"`
		Stdout string `json:"stdout"`
		Stderr string `json:"stderr"`
		Error  string `json:"error,omitempty"`
	}
	results := make([]result, len(all))
	for i, one := range all {
		results[i] = result{Host: one.Host, Code: one.Code}
		if o := heard[one.Host]; o != nil {
			results[i].Stdout, results[i].Stderr = o.out.String(), o.err.String()
		}
		if one.Err != nil {
			results[i].Code, results[i].Error = -1, one.Err.Error()
		}
	}
	return errors.Join(p.print(format, results), cmp.Or(err, errors.Join(failures(all)...)))
}

func failures(all []app.Executed) (errs []error) {
	for _, one := range all {
		err := one.Err
		if err == nil && one.Code != 0 {
			err = fmt.Errorf("the command exited with status %d", one.Code)
		}
		if err != nil {
			errs = append(errs, &app.HostError{Host: one.Host, Err: err})
		}
	}
	return errs
}

// outputs are what a host answers: lines to be shown as they come, or all of it.
type outputs struct {
	lines    [2]lines
	out, err kept
}

// kept is as much of an output as a result may have.
type kept struct{ bytes.Buffer }

const mostKept = 16 << 20

func (k *kept) Write(b []byte) (int, error) {
	if k.Len()+len(b) > mostKept {
		return 0, fmt.Errorf("the output is longer than %s", human.Bytes(mostKept))
	}
	return k.Buffer.Write(b)
}

// lines shows whole lines, each behind a prefix, without what would control a terminal.
type lines struct {
	to     io.Writer
	mu     *sync.Mutex // of the terminal
	prefix string
	raw    bool // as it is
	rest   []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.raw {
		return l.to.Write(b)
	}
	l.rest = append(l.rest, b...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole && len(l.rest) < human.MostText {
			return len(b), nil
		}
		if len(line) > human.MostText { // in pieces
			line, rest = l.rest[:human.MostText], l.rest[human.MostText:]
		}
		if _, err := fmt.Fprintf(l.to, "%s%s\n", l.prefix, human.Clean(string(line))); err != nil {
			return 0, err
		}
		l.rest = rest
	}
}

// end shows a last line that has no end.
func (l *lines) end() {
	if len(l.rest) > 0 {
		_, _ = l.Write([]byte("\n"))
	}
}

func (p *program) sshCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ssh HOST", Short: "Log in to a machine of a cluster", GroupID: groupLook,
		Long: `Log in to a machine of a cluster as kubexm does: with its user, key or password, through its bastion, and with its
host key checked. The exit code is 0 when the shell has ended, whatever it says.`,
		Example: "  kubexm ssh node1 --name prod",
		Args:    arguments(1), PreRunE: p.chosen,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return p.hostNames(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	p.keysFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, ok := p.in.(*os.File)
		switch {
		case len(args) == 0:
			return usage(fault.Advise(errors.New("to which machine?"), "name it: kubexm ssh HOST; there are: "+strings.Join(p.hostNames(), ", ")))
		case !ok || !terminal(p.in) || !terminal(p.out):
			return usage(fault.Advise(errors.New("a login needs a terminal"), "run a command without one: kubexm exec --host "+runner.Quote(args[0])+" -- COMMAND"))
		}
		return p.login(cmd.Context(), args[0], in)
	}
	return cmd
}

// login connects the terminal with a login shell.
func (p *program) login(ctx context.Context, host string, in *os.File) error {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	sizes := make(chan connector.Size)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now := func() (s connector.Size) { s.Width, s.Height = size(p.out); return s }
	go func() {
		for {
			select {
			case <-resized:
			case <-ctx.Done():
				return
			}
			select {
			case sizes <- now():
			case <-ctx.Done():
				return
			}
		}
	}()
	keys := &rawKeys{file: in}
	defer keys.restore()
	return p.app.Login(ctx, p.request, p.observer(), host, connector.Terminal{
		In: keys, Out: p.out, Type: cmp.Or(os.Getenv("TERM"), "xterm"), Size: now(), Resized: sizes,
	})
}

// rawKeys hands on each key as it is pressed, from the first one that is asked for: until then the terminal may be
// needed for questions.
type rawKeys struct {
	file   *os.File // not embedded: it has methods that would be preferred to Read
	mu     sync.Mutex
	before *term.State
	over   bool
}

func (r *rawKeys) Read(b []byte) (int, error) {
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		return 0, io.EOF
	}
	if r.before == nil {
		r.before, _ = term.MakeRaw(int(r.file.Fd()))
	}
	r.mu.Unlock()
	return r.file.Read(b)
}

func (r *rawKeys) restore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.before != nil {
		_ = term.Restore(int(r.file.Fd()), r.before)
	}
}
