//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/util/diff"
	"github.com/kubexm/kubexm/test/testbed"
)

// state is all that two clusters of one configuration have in common: what lies
// on the nodes and in the API, without what is random or differs in time.
type state map[string]string

// stateOf looks at all nodes and at the API of a cluster.
func stateOf(t *testing.T, c *cluster) state {
	t.Helper()
	s := state{}
	for _, n := range the.nodes {
		if err := s.files(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		snapshot, err := the.bed.Snapshot(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		s.snapshot(n.Name, snapshot)
		s[n.Name+" units"] = the.on(t, n, `for u in kubelet containerd crio docker cri-docker etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy; do
echo $u $(systemctl is-enabled $u 2>&1 | tail -1) $(systemctl is-active $u) $(systemctl show -p NRestarts,ExecStart $u | sed 's/; start_time.*//'); done`)
	}
	if err := s.objects(t.Context(), c.kubeconfig()); err != nil {
		t.Fatal(err)
	}
	return s
}

// differs describes what is not as it is in the state of an undisturbed cluster.
func (s state) differs(undisturbed state) string {
	var b strings.Builder
	keys := slices.Collect(maps.Keys(undisturbed))
	keys = slices.AppendSeq(keys, maps.Keys(s))
	slices.Sort(keys)
	for _, k := range slices.Compact(keys) {
		b.WriteString(diff.Unified(k, undisturbed[k], s[k]))
	}
	return b.String()
}

// rendered are the places where kubexm, kubeadm and kubelets write configuration.
const rendered = "etc var/lib/kubelet/config.yaml var/lib/kubelet/kubeadm-flags.env var/lib/kube-proxy var/lib/kubexm"

// files reads the rendered files of a node.
func (s state) files(ctx context.Context, n testbed.Node) error {
	line := append(the.bed.SSHCommand(n, "root"), "cd /; ls -d "+rendered+" 2>/dev/null | tar cf - --ignore-failed-read --warning=none -T -")
	out, err := exec.CommandContext(ctx, line[0], line[1:]...).Output()
	if err != nil {
		return fmt.Errorf("reading files of %s: %w", n.Name, err)
	}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading files of %s: %w", n.Name, err)
		}
		name := "/" + h.Name
		if strings.HasSuffix(name, "/") || noise.MatchString(name) {
			continue // the snapshot has the directories
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("reading files of %s: %w", n.Name, err)
		}
		s[n.Name+" "+name] = fmt.Sprintf("%o %d:%d %s\n%s", h.Mode, h.Uid, h.Gid, h.Linkname, normal(name, data))
	}
}

// noise are files of a machine, not of a cluster.
var noise = regexp.MustCompile(`^/etc/(machine-id|ssh/ssh_host_.*|ssl/certs/.*)$`)

var (
	embedded = regexp.MustCompile(`(certificate-authority-data|client-certificate-data|client-key-data): (\S+)`)
	digest   = regexp.MustCompile(`(KUBEXM_DIGEST(?:=|\s+value: ))"?[0-9a-f]+"?`) // of everything, certificates and keys too
	identity = regexp.MustCompile(`(?m)^id=[0-9a-z]{26}$`)
	shared   = regexp.MustCompile(`^sysctl (kernel|vm|fs)/`)
)

// normal takes the chance out of a file's content: certificates are told by what
// they say, keys by their kind.
func normal(name string, data []byte) string {
	switch {
	case path.Ext(name) == ".crt" || path.Ext(name) == ".key" || path.Ext(name) == ".pem" || path.Ext(name) == ".pub":
		return describePEM(data)
	case strings.HasPrefix(name, "/var/lib/kubexm/sums/"): // of what was uploaded: sum, size, time, inode
		return strings.Join(strings.Fields(string(data))[:2], " ")
	case path.Base(name) == "ledger": // its order follows the order of events
		// What kernels know only once for all of this machine's nodes is noted by the node that is first.
		lines := slices.DeleteFunc(strings.Split(string(data), "\n"), shared.MatchString)
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	case name == "/var/lib/kubexm/env":
		return identity.ReplaceAllString(string(data), "id=")
	}
	text := digest.ReplaceAllString(string(data), "$1")
	return embedded.ReplaceAllStringFunc(text, func(m string) string {
		f := embedded.FindStringSubmatch(m)
		data, err := base64.StdEncoding.DecodeString(f[2])
		if err != nil {
			return m
		}
		return f[1] + ": " + describePEM(data)
	})
}

func describePEM(data []byte) string {
	var b strings.Builder
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		fmt.Fprintln(&b, block.Type)
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			days := int(c.NotAfter.Sub(c.NotBefore).Hours()/24 + 0.5)
			fmt.Fprintln(&b, c.Subject, "by", c.Issuer, c.DNSNames, c.IPAddresses, c.KeyUsage, c.ExtKeyUsage, c.IsCA, days, "days", c.PublicKeyAlgorithm)
		}
	}
	return b.String()
}

// passing are lines of snapshots that come and go with pods, by section.
var passing = map[string]*regexp.Regexp{
	"files":      regexp.MustCompile(`^/(etc|var)/\S* [fl] |^/var/lib/(containerd|crio|docker|cri-dockerd|cni|etcd|kubelet)[/ ]`), // files are compared by content
	"sums":       regexp.MustCompile(`  /(etc|var)/`),                                                                             // the same
	"interfaces": regexp.MustCompile(`^veth|^cni|^flannel(-v6)?.1 inet|^[0-9a-f]{8}-[0-9a-f-]{27}$`),                              // who comes first gets the first subnet
	"mounts":     regexp.MustCompile(`/var/lib/kubelet/pods/|/run/containerd/|/run/crio/|/run/docker/|/run/(net|ipc|uts|user)ns/|/var/lib/crio/storage/overlay/|/var/lib/docker/`),
}

// unlike are sections of snapshots that differ from one cluster to the next.
var unlike = []string{"processes", "packet filter", "routes", "kernel modules, swap, control groups, runtime files"}

// snapshot adds what is the same in all clusters of a testbed's snapshot.
func (s state) snapshot(node, text string) {
	for section := range strings.SplitSeq(text, "\n== ") {
		title, body, _ := strings.Cut(section, "\n")
		if slices.Contains(unlike, title) {
			continue
		}
		var keep []string
		for line := range strings.SplitSeq(body, "\n") {
			if p := passing[title]; p == nil || !p.MatchString(line) {
				keep = append(keep, line)
			}
		}
		s[node+" "+title] = strings.Join(keep, "\n")
	}
}
