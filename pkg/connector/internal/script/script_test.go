package script

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestStartComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.StringOf(rapid.SampledFrom([]rune(`ab '"\$%-é`+"\n"))).Draw(t, "line")
		nonce, got, ok := ParseStart(One("kx12", line, rapid.Bool().Draw(t, "sudo")))
		if !ok || nonce != "kx12" || got != line {
			t.Fatalf("got nonce %q, line %q, %v", nonce, got, ok)
		}
	})
	if nonce, line, ok := ParseStart(Many("kx12", false)); !ok || nonce != "kx12" || line != "" {
		t.Errorf("got nonce %q, line %q, %v", nonce, line, ok)
	}
	if _, _, ok := ParseStart("ls -l"); ok {
		t.Error("a plain command passed for a start")
	}
}

func TestCallComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.StringOf(rapid.SampledFrom([]rune(`ab '"\$%-é`+"\n"))).Draw(t, "line")
		stdin := rapid.SliceOf(rapid.Byte()).Draw(t, "stdin")
		r := bufio.NewReader(strings.NewReader(Functions("kx12") + Call(line, stdin) + Call("next", nil)))
		got, in, err := ReadCall(r)
		if err != nil || got != line || string(in) != string(stdin) {
			t.Fatalf("got %q with %q, %v", got, in, err)
		}
		if got, in, err := ReadCall(r); err != nil || got != "next" || in != nil {
			t.Fatalf("got %q with %q, %v after it", got, in, err)
		}
		if _, _, err := ReadCall(r); err != io.EOF {
			t.Fatalf("got %v at the end", err)
		}
	})
}

// Every byte must come through the printf of the shells that hosts have.
func TestShellsPrintEveryByte(t *testing.T) {
	var all []byte
	for _, first := range []byte{'-', '%', 0, '\n'} {
		all = append(all, first)
		for c := range 256 {
			all = append(all, byte(c))
		}
	}
	for _, shell := range []string{"sh", "dash", "bash", "busybox"} {
		args := []string{"-s"}
		if shell == "busybox" {
			args = []string{"sh", "-s"}
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not installed: not tried", shell)
			continue
		}
		cmd := exec.Command(path, args...)
		cmd.Stdin = strings.NewReader("kx() { cat; }\n" + Call("", all))
		got, err := cmd.Output()
		if err != nil || string(got) != string(all) {
			t.Errorf("%s gave %q, %v", shell, got, err)
		}
	}
}
