package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// detach starts this program again in the background, with its process
// number in base.pid and its output in base.log, and waits until it is ready.
func (t *Testbed) detach(ctx context.Context, base, what string, args []string, ready func() bool) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting %s: %w", what, err)
	}
	log, err := os.Create(base + ".log")
	if err != nil {
		return fmt.Errorf("starting %s: %w", what, err)
	}
	defer log.Close()
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "KUBEXM_TESTBED="+t.Name)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", what, err)
	}
	if err := os.WriteFile(base+".pid", []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		return fmt.Errorf("starting %s: %w", what, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	dead := false
	err = waitFor(ctx, what+" to be ready", func() bool {
		dead = len(ended) > 0
		return dead || ready()
	})
	if dead || err != nil {
		text, _ := os.ReadFile(base + ".log")
		return errors.Join(fmt.Errorf("starting %s: it is not ready; its output: %s", what, text), err)
	}
	return nil
}

// detached is the process that detach started for base; 0 when it has ended.
func detached(base string) int {
	b, _ := os.ReadFile(base + ".pid")
	pid, err := strconv.Atoi(string(b))
	if err != nil {
		return 0
	}
	out, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", pid))
	if out != base+".log" {
		return 0 // the number belongs to another process by now
	}
	return pid
}

// endDetached ends the process that detach started for base, if it lives.
func endDetached(ctx context.Context, base string) error {
	pid := detached(base)
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("ending process %d: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return waitFor(ctx, "process "+strconv.Itoa(pid)+" to end", func() bool { return detached(base) == 0 })
}
