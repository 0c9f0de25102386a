package connector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const childEnv = "CONNECTOR_TEST_CHILD"

// inChild reports whether this process is a test binary that a test started.
func inChild() bool { return os.Getenv(childEnv) != "" }

// On this machine, too, an ordinary user becomes root by sudo, and says so when he
// may not.
func TestLocalAsUser(t *testing.T) {
	for _, test := range []struct {
		name, sudoers, want string
	}{
		{"allowed", "USER ALL=(ALL) NOPASSWD: ALL", "0 payload"},
		{"asked", "USER ALL=(ALL) ALL", "sudo refused the password: it asks for one and none is set"},
		{"not allowed", "", "sudo refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAccount(t, test.sudoers)
			u, err := user.Lookup(a.name)
			if err != nil {
				t.Fatal(err)
			}
			uid, _ := strconv.Atoi(u.Uid)
			gid, _ := strconv.Atoi(u.Gid)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			binary := filepath.Join(sharedDir(t), "test")
			run(t, "", "cp", self, binary)
			cmd := exec.Command(binary, "-test.run=^TestLocalChild$", "-test.v")
			cmd.Dir = filepath.Dir(binary)
			cmd.Env = append(os.Environ(), childEnv+"=1")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), test.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestLocalChild is what TestLocalAsUser runs as another user.
func TestLocalChild(t *testing.T) {
	if !inChild() {
		return
	}
	c := Local()
	defer c.Close()
	var out writer
	err := c.Exec(context.Background(), Cmd{Line: "id -u; cat", Sudo: true, Stdin: stream("payload"), Stdout: &out})
	fmt.Println(strings.ReplaceAll(out.text, "\n", " "), err)
}

// An input that blocks holds neither a command that needs no more of it nor a cancel.
func TestLocalBlockedInput(t *testing.T) {
	c := Local()
	defer c.Close()
	r, w := io.Pipe()
	defer w.Close()
	if err := c.Exec(context.Background(), Cmd{Line: "exit 3", Stdin: r}); err == nil || err.(*ExitError).Code != 3 {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Exec(ctx, Cmd{Line: "cat", Stdin: r}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
