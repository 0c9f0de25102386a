package cli

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/crypto/ssh"

	"github.com/kubexm/kubexm/pkg/resource/resourcetest"
	"github.com/kubexm/kubexm/pkg/util/golden"
	"github.com/kubexm/kubexm/pkg/util/racetest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kubexm": func() { os.Exit(Main(os.Args[1:])) }, "unread": unread})
}

// TestScripts runs kubexm as people do, in the scripts of testdata/script.
func TestScripts(t *testing.T) {
	racetest.Slow(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *golden.Update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TZ", "UTC")
			env.Setenv("SSH_AUTH_SOCK", "")
			readme, err := filepath.Abs("../../README.md")
			env.Setenv("README", readme)
			env.Setenv("KXZONE", "")
			upstream := resourcetest.New()
			env.Defer(upstream.Close)
			return errors.Join(err, writeKey(env.WorkDir), os.WriteFile(filepath.Join(env.WorkDir, "upstream.yaml"), []byte(upstream.Mirrors()), 0o644))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// writeKey writes an SSH key, the same each time, to the files key and key.pub.
func writeKey(dir string) error {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	block, err1 := ssh.MarshalPrivateKey(key, "")
	signer, err2 := ssh.NewSignerFromKey(key)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "key"), pem.EncodeToMemory(block), 0o600),
		os.WriteFile(filepath.Join(dir, "key.pub"), ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o644))
}

// exits runs a program that must end with an exit code: exits CODE PROGRAM ARGS...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
