package kubeadm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// TestStoppedPodComesBack ends a script, on real shells, while a pod is away that is to come back after another one.
func TestStoppedPodComesBack(t *testing.T) {
	for _, shell := range runnertest.Shells() {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := runnertest.NewSandbox(t, shell)
			s.Put(manifest(apiServer), "manifest", 0o600)
			s.Put(madeDir+"/"+apiServer+".yaml", "manifest", 0o600)
			s.Put(configPath, "", 0o600)
			library := Pods{Name: "lb.kubexm.local"}.inputs() + runner.Script(scripts, "pods") + "\npids() { :; }\nPHASE=false\n"
			if _, err := s.Runner().Sh(t.Context(), library+"stop kube-apiserver; renew etcd 'etcd local'"); err == nil {
				t.Fatal("the script ended well")
			}
			if text, err := os.ReadFile(s.Path(manifest(apiServer))); string(text) != "manifest" {
				t.Errorf("the manifest is %q, %v", text, err)
			}
		})
	}
}

// TestPids runs two programs whose names have the same first 15 characters: all that the kernel keeps of them.
func TestPids(t *testing.T) {
	program, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	var started []string
	for _, name := range []string{"kube-controllers", "kube-controller-manager"} {
		at := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(at, program, 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(at, "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		started = append(started, fmt.Sprintf("/proc/%d", cmd.Process.Pid))
	}
	got, err := exec.Command("sh", "-c", ". ./scripts/pods.sh; pids kube-controller-manager").Output()
	if found := strings.Fields(string(got)); err != nil || slices.Contains(found, started[0]) || !slices.Contains(found, started[1]) { // and those of others
		t.Errorf("got %q, %v; of %q the last one is it", found, err, started)
	}
}
