package testbed

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/test/testbed/build"
	"github.com/kubexm/kubexm/test/testbed/host"
)

//go:embed scripts/etcd.sh
var etcdScript string

// EtcdCerts is the directory of the certificates of the etcd that RunEtcd runs: ca.crt, and client.crt
// with client.key for those who call it.
func (t *Testbed) EtcdCerts() string { return filepath.Join(t.Dir, "certs", string(pki.Etcd)) }

// etcdCerts makes those that are not there yet.
func (t *Testbed) etcdCerts(n Node) error {
	store := &pki.Store{Dir: filepath.Dir(t.EtcdCerts())}
	member, client := pki.EtcdMember("etcd", n.Addresses()), pki.EtcdClient("etcd")
	member.Name, client.Name = "member", "client"
	for _, spec := range []pki.Spec{member, client} {
		if _, err := store.Leaf(spec); err != nil {
			return err
		}
	}
	return store.Flush()
}

func etcdURL(n Node) string { return "https://" + n.Port("2379") }

// RunEtcd runs an etcd on a node that holds nothing yet and has an authority of its own: one that is
// not kubexm's. It comes back when the node boots again.
func (t *Testbed) RunEtcd(ctx context.Context, b *build.Builder, n Node) error {
	table, err := b.Table()
	if err != nil {
		return err
	}
	etcd, err := build.Find(table, "etcd")
	if err != nil {
		return err
	}
	dir, ok := b.Built(etcd)
	if !ok {
		return fmt.Errorf("running etcd on %s: it is not built: run testbed build etcd", n.Name)
	}
	if err := t.etcdCerts(n); err != nil {
		return fmt.Errorf("running etcd on %s: %w", n.Name, err)
	}
	files := exec.CommandContext(ctx, "tar", "-c", "-C", filepath.Join(dir, "bin"), "etcd", "-C", t.EtcdCerts(), "ca.crt", "member.crt", "member.key")
	line := append(t.SSHCommand(n, "root"), "URL="+etcdURL(n)+"; "+etcdScript)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	if cmd.Stdin, err = files.StdoutPipe(); err != nil {
		return err
	}
	if err := files.Start(); err != nil {
		return err
	}
	_, err = host.Output(cmd)
	if ended := files.Wait(); err == nil {
		err = ended
	}
	if err != nil {
		return fmt.Errorf("running etcd on %s: %w", n.Name, err)
	}
	return nil
}
