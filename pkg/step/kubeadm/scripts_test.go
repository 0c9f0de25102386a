package kubeadm

import (
	"os"
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
			if _, err := s.Runner().Sh(t.Context(), library+"stop kube-apiserver kube-apiserver; renew etcd 'etcd local'"); err == nil {
				t.Fatal("the script ended well")
			}
			if text, err := os.ReadFile(s.Path(manifest(apiServer))); string(text) != "manifest" {
				t.Errorf("the manifest is %q, %v", text, err)
			}
		})
	}
}
