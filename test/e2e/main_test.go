//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kubexm/kubexm/test/testbed"
	"github.com/kubexm/kubexm/test/testbed/build"
	"github.com/kubexm/kubexm/test/testbed/mirror"
)

// lab is what all tests use: two machines, a mirror, a DNS server of the outside
// world, and the program.
type lab struct {
	bed     *testbed.Testbed
	builder *build.Builder
	table   []build.Component
	nodes   []testbed.Node // node1 has Debian 12, node2 Debian 13
	program string
	dir     string
	fault   atomic.Pointer[func(*http.Request) mirror.Fault] // how the mirror answers; nil: well
	close   func()                                           // ends the mirror and waits for its end
}

// bedName is the testbed that is used unless KUBEXM_TESTBED names one.
const bedName = "rows"

// the is the one lab; TestMain makes it.
var the lab

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := the.open(ctx)
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	} else {
		go func() { // asked to end while tests run
			<-ctx.Done()
			fmt.Fprintln(os.Stderr, "e2e: clearing up:", the.shut())
			os.Exit(1)
		}()
		code = m.Run()
		printTimes()
	}
	if code == 0 || os.Getenv("E2E_KEEP") == "" {
		if err := the.shut(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: clearing up:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// open builds what is needed and boots the machines.
func (l *lab) open(ctx context.Context) (err error) {
	if os.Getenv("KUBEXM_TESTBED") == "" {
		os.Setenv("KUBEXM_TESTBED", bedName)
	}
	if l.bed, err = testbed.Open("", os.Stdout); err != nil {
		return err
	}
	if l.builder, err = build.NewBuilder(ctx, l.bed.Cache, os.Stdout); err != nil {
		return err
	}
	if l.table, err = l.builder.Table(); err != nil {
		return err
	}
	if l.dir, err = os.MkdirTemp("", "kubexm-e2e-"); err != nil {
		return err
	}
	l.program = filepath.Join(l.dir, "kubexm")
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{{"build the program", l.compile}, {"build components", l.components}, {"boot machines", l.boot}, {"serve", l.serve}} {
		begin := time.Now()
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		note(part.name, time.Since(begin))
	}
	return nil
}

func (l *lab) compile(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "build", "-o", l.program, "github.com/kubexm/kubexm/cmd/kubexm").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (l *lab) components(ctx context.Context) error {
	if err := l.builder.Build(ctx, build.Default(l.table)); err != nil {
		return err
	}
	return l.images(ctx, "")
}

// images makes those of a version of Kubernetes; empty: of the newest.
func (l *lab) images(ctx context.Context, version string) error {
	kubernetes, err := build.Find(l.table, "kubernetes@"+version)
	if err != nil {
		return err
	}
	images, err := mirror.Images(ctx, l.builder, kubernetes.Version)
	if err != nil {
		return err
	}
	return mirror.Make(ctx, l.bed.Cache, os.Stdout, images)
}

func (l *lab) boot(ctx context.Context) (err error) {
	l.nodes, err = l.bed.Up(ctx, testbed.Options{Nodes: 2, OS: "mixed", Family: family()})
	return err
}

// serve starts the mirror.
func (l *lab) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		ended <- l.bed.Serve(ctx, l.builder, func(r *http.Request) mirror.Fault {
			if f := l.fault.Load(); f != nil {
				return (*f)(r)
			}
			return mirror.Fault{}
		})
	}()
	l.close = func() {
		cancel()
		if err := <-ended; err != nil {
			fmt.Fprintln(os.Stderr, "e2e: the mirror:", err)
		}
	}
	for {
		answer, err := http.Get("http://" + l.bed.ImagesAddress() + "/v2/")
		if err == nil {
			answer.Body.Close()
			return nil
		}
		select {
		case err := <-ended:
			ended <- err
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// renew replaces the machines by new ones, with other host keys: something went wrong on them.
func (l *lab) renew(t *testing.T) {
	t.Log("the machines are recreated")
	ctx := context.Background()
	var names []string
	for _, n := range l.nodes {
		names = append(names, n.Name)
	}
	if err := l.bed.Down(ctx, names...); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.boot(ctx), os.RemoveAll(filepath.Join(l.dir, "work", "e2e"))); err != nil {
		t.Fatal(err)
	}
}

func (l *lab) shut() error {
	if l.close != nil {
		l.close()
	}
	if l.bed == nil {
		return nil
	}
	if err := l.bed.Down(context.Background()); err != nil {
		return err
	}
	return os.RemoveAll(l.dir)
}

// on runs a command as root on a node and returns what it prints.
func (l *lab) on(t *testing.T, n testbed.Node, command string) string {
	t.Helper()
	out, err := l.bed.SSH(context.WithoutCancel(t.Context()), n, command)
	if err != nil {
		t.Fatalf("%s: %v", n.Name, err)
	}
	return strings.TrimSpace(out)
}

// snapshots describes all nodes.
func (l *lab) snapshots(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, n := range l.nodes {
		text, err := l.bed.Snapshot(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	return all
}
