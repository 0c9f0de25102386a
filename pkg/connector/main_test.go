package connector

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if inChild() {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

// goldenError compares an error as its user sees it with testdata/<test name>. Pairs of
// old and new replace what differs from run to run.
func goldenError(t *testing.T, err error, pairs ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	text := fmt.Sprintf("%v\nnext: %s\ntransient: %v\n", err, fault.Advice(err), fault.IsTransient(err))
	text = strings.NewReplacer(pairs...).Replace(text)
	golden.Equal(t, text)
}

// output runs a command that must succeed and returns its standard output.
func output(t testing.TB, c Connector, cmd Cmd) string {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := c.Exec(context.Background(), cmd); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// stream is input of unknown length: a command that reads it gets its own session.
func stream(text string) io.Reader { return struct{ io.Reader }{strings.NewReader(text)} }
