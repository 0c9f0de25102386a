package etcd

import (
	"slices"
	"strconv"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
)

// Timed are the steps of those timers on a host.
func Timed(c *cluster.Cluster, host string) (steps []step.Step) {
	for _, name := range c.EtcdTimers() {
		t := backupTimer(c)
		if name == cluster.DefragTimer {
			t = defragTimer(c, host)
		}
		t.Name = name
		t.Script = "set -eu\n" + caller(c, host) + runner.Script(scripts, "member") + t.Script
		steps = append(steps, t.Steps()...)
	}
	return steps
}

// caller are the inputs by which the member of a host is called from there.
func caller(c *cluster.Cluster, host string) string {
	if c.Spec.Etcd.Type == v1alpha1.TypeKubeadm {
		const dir = "/etc/kubernetes/pki/etcd/"
		return runner.Inputs("URL", "https://127.0.0.1:2379", "CA", dir+"ca.crt", "CERT", dir+"healthcheck-client.crt", "KEY", dir+"healthcheck-client.key", "POD", "etcd")
	}
	name := SSLDir + "/admin-" + host
	return runner.Inputs("URL", "https://127.0.0.1:2379", "CA", caPath, "CERT", name+".pem", "KEY", name+"-key.pem", "POD", "")
}

func backupTimer(c *cluster.Cluster) step.Timer {
	a := c.Spec.Etcd.AutoBackup
	return step.Timer{
		Description: "Snapshot of etcd", Calendar: a.Schedule, Timeout: "1h", Settings: []string{"RandomizedDelaySec=10min"},
		Script: runner.Inputs("D", c.Spec.Etcd.DataDir, "B", a.Dir, "KEEP", strconv.Itoa(a.Keep)) + runner.Script(scripts, "backup") + "backup\n",
	}
}

// defragTimer lets members begin one after the other: each has ended before the next one begins.
func defragTimer(c *cluster.Cluster, host string) step.Timer {
	turn := slices.Index(c.All(v1alpha1.RoleEtcd), host) * (defragMinutes + 1)
	return step.Timer{
		Description: "Defragmentation of etcd", Calendar: c.Spec.Etcd.AutoDefrag.Schedule, Timeout: strconv.Itoa(turn+defragMinutes) + "min", Settings: []string{"AccuracySec=1s"},
		Script: runner.Script(scripts, "defrag") + "sleep " + strconv.Itoa(turn*60) + "\ndefrag\n",
	}
}

const defragMinutes = 15 // that a member may take
