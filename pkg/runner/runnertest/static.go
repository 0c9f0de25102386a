package runnertest

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"strings"
)

var commented = regexp.MustCompile(`(?m)^# (--.*)$`)

// digested is the line of a manifest that tells a pod's environment.
var digested = regexp.MustCompile(`name: KUBEXM_DIGEST\n\s+value: "(.*)"`)

// runPods has a process for each static pod, started from its manifest as it is now, as the kubelet sees to it. One that
// fails is started again the next time.
func (h *Host) runPods() {
	h.kubelet.Lock()
	defer h.kubelet.Unlock()
	h.tendPods()
}

func (h *Host) tendPods() {
	list, err := h.fs.readDir("/etc/kubernetes/manifests")
	if err != nil {
		return
	}
	manifests := map[string]string{}
	for _, e := range list {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok && !strings.HasPrefix(name, ".") {
			manifests[name], _ = h.Get("/etc/kubernetes/manifests/" + e.Name())
		}
	}
	h.mu.Lock()
	was := maps.Clone(h.static)
	h.mu.Unlock()
	for _, name := range sorted(was) {
		if text, ok := manifests[name]; !ok || text != was[name].manifest {
			h.endPod(name)
			delete(was, name)
		}
	}
	for _, name := range sorted(manifests) {
		if _, runs := was[name]; !runs {
			h.startPod(name, manifests[name])
		}
	}
}

// startPod runs a static pod, unless what OnStart has for it, as "pod etcd", fails.
func (h *Host) startPod(name, manifest string) {
	if hook := h.OnStart["pod "+name]; hook != nil {
		if err := hook(h); err != nil {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.journal["kubelet.service"] = append(h.journal["kubelet.service"], "pod "+name+": "+err.Error())
			return
		}
	}
	var env []string
	if m := digested.FindStringSubmatch(manifest); m != nil {
		env = []string{"KUBEXM_DIGEST=" + m[1]}
	}
	h.notePod(manifest)
	h.changed("start pod %s", name)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastPID++
	h.static[name], h.pods[name] = staticPod{1000 + h.lastPID, manifest}, true
	var args []string
	for _, m := range commented.FindAllStringSubmatch(manifest, -1) {
		args = append(args, m[1])
	}
	h.process(1000+h.lastPID, "/bin/"+name, args, env)
}

// staticPod is one that runs.
type staticPod struct {
	pid      int
	manifest string // that it was started from
}

// What a static pod that reads files again notes of one, in its manifest.
var (
	noting  = regexp.MustCompile(`sha256sum (\S+) >(\S+)`)
	mounted = regexp.MustCompile(`hostPath: \{path: (\S+), type: Directory\}`)
)

// notePod does so when it has read it.
func (h *Host) notePod(manifest string) {
	note, dir := noting.FindStringSubmatch(manifest), mounted.FindStringSubmatch(manifest)
	if note != nil && dir != nil {
		text, _ := h.Get(dir[1] + "/" + note[1])
		h.Put(note[2], fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(text)), note[1]), 0o644)
	}
}

// reloadPod has a static pod read its files again.
func (c *Call) reloadPod(name string) int {
	if err := c.OnReload["pod "+name](c.Host); err != nil {
		return c.Failf(1, "%v", err)
	}
	c.mu.Lock()
	manifest := c.static[name].manifest
	c.mu.Unlock()
	c.notePod(manifest)
	c.changed("reload pod %s", name)
	return 0
}

// endPod stops a static pod.
func (h *Host) endPod(name string) {
	h.changed("stop pod %s", name)
	if hook := h.OnStop["pod "+name]; hook != nil {
		hook(h)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.losePod(name)
}

// losePod forgets a static pod.
func (h *Host) losePod(name string) {
	if pid := h.static[name].pid; pid > 0 {
		h.fs.drop(fmt.Sprintf("/proc/%d", pid))
	}
	delete(h.static, name)
	delete(h.pods, name)
}

// passes lets a moment pass for a kubelet that runs.
func (h *Host) passes() {
	h.kubelet.Lock()
	defer h.kubelet.Unlock()
	if h.tended && strings.HasPrefix(h.Unit("kubelet"), "active") && !h.down.Load() {
		h.tendPods()
	}
}

// tend says whether there is a kubelet that looks after static pods.
func (h *Host) tend(is bool) {
	h.kubelet.Lock()
	defer h.kubelet.Unlock()
	h.tended = is
}
