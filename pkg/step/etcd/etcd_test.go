package etcd_test

import (
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestRendered(t *testing.T) {
	text := func(c *cluster.Cluster) string {
		return clustertest.Text(etcd.DataDir(c), etcd.MemberCerts(c, "node1"), etcd.ClientCerts(c, "node1"), etcd.Bootstrap(c), etcd.Service(c, "node1"))
	}
	for name, spec := range map[string]string{
		"defaults":   "",
		"extra args": "  etcd: {type: kubexm, dataDir: /data/etcd, extraArgs: {quota-backend-bytes: \"4294967296\", log-level: warn}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			golden.Equal(t, text(clustertest.New(t, spec, nil)))
		})
	}
	t.Run("families", func(t *testing.T) { golden.Equal(t, clustertest.Families(t, "", text)) })
}

// TestExternal brings the user's own files to masters of both kinds.
func TestExternal(t *testing.T) {
	store := &pki.Store{Dir: t.TempDir()}
	for kind, want := range map[string]string{"kubeadm": "apiserver", "kubexm": "node-node1"} {
		c := clustertest.Parse(t, clustertest.Alone+"  kubernetes: {type: "+kind+"}\n"+clustertest.ExternalEtcd(t, store), nil)
		pair, err := store.Leaf(pki.EtcdClient("user"))
		if err != nil {
			t.Fatal(err)
		}
		files := etcd.ClientCerts(c, "node1").(step.Files).List
		key, at := files[2], etcd.Endpoint(c, "node1")
		if key.Path != etcd.SSLDir+"/"+want+"-key.pem" || key.Path != at.KeyFile || key.Mode != 0o600 || string(key.Content) != pair.Key.Reveal() {
			t.Errorf("%s: the key is %s %o", kind, key.Path, key.Mode)
		}
		if files[1].Path != at.CertFile || string(files[1].Content) != string(pair.Cert) || files[0].Path != at.CAFile {
			t.Errorf("%s: certificates %s and %s", kind, files[0].Path, files[1].Path)
		}
		if urls := at.Endpoints; len(urls) != 1 || urls[0] != "https://10.0.0.31:2379" {
			t.Errorf("%s: %s", kind, urls)
		}
	}
}
