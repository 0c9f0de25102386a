package etcd_test

import (
	"crypto/sha256"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/cluster/clustertest"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/step/etcd"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

const timed = "  etcd: {type: kubexm, autoBackup: {enabled: true, keep: 2}, autoDefrag: {enabled: true}}\n"

func TestTimersRendered(t *testing.T) {
	for name, spec := range map[string]string{
		"binary":  timed,
		"kubeadm": "  etcd: {type: kubeadm, dataDir: /data/etcd, autoBackup: {enabled: true, dir: /srv/snapshots, schedule: hourly}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			golden.Equal(t, clustertest.Text(etcd.Timed(clustertest.New(t, spec, nil), "node1")...))
		})
	}
}

// care is a machine with a member of etcd, and the scripts of its timers. A program answers as etcdctl does; what it is asked for is in /asked.
func care(t *testing.T, shell, spec, ctl string) (s *runnertest.Sandbox, run func(name string) (asked string, err error)) {
	t.Helper()
	s = runnertest.NewSandbox(t, shell)
	for _, st := range etcd.Timed(clustertest.New(t, spec, nil), "node1") {
		files, is := st.(step.Files)
		if !is {
			continue
		}
		f := files.List[0]
		s.Put("/opt/"+filepath.Base(f.Path), string(f.Content), f.Mode)
	}
	s.Put("/var/lib/etcd/member/snap/db", "data", 0o600)
	s.Put("/programs/sleep", "#!/bin/sh\n", 0o755)
	s.Put("/programs/etcdctl", "#!/bin/sh\necho \"$1 $2 $3\" >>/asked\n"+ctl, 0o755)
	s.Put("/programs/crictl", "#!/bin/sh\nif [ $1 = ps ]; then echo 77; else shift 2; exec \"$@\"; fi\n", 0o755)
	return s, func(name string) (string, error) {
		_, err := s.Runner().Sh(t.Context(), "rm -f /asked; "+shell+" /opt/kubexm-etcd-"+name)
		asked, _ := s.Runner().Sh(t.Context(), "cat /asked")
		return asked, err
	}
}

func TestTimedBackup(t *testing.T) {
	sum := sha256.Sum256([]byte("snapshot"))
	const saves = "if [ $1 = snapshot ]; then cat /given >\"$3\"; fi\n"
	for _, shell := range runnertest.Shells() {
		for kind, spec := range map[string]string{"binary": timed, "kubeadm": strings.Replace(timed, "type: kubexm", "type: kubeadm", 1)} {
			t.Run(shell+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s, run := care(t, shell, spec, saves)
				list := func() (names []string) {
					all, _ := filepath.Glob(s.Path("/var/backups/kube_etcd/etcd-*.db"))
					for _, f := range all {
						names = append(names, filepath.Base(f))
					}
					return names
				}
				s.Put("/given", "snapshot"+string(sum[:]), 0o600)
				s.Put("/var/backups/kube_etcd/etcd-20200101T000000Z.db", "first", 0o600)
				s.Put("/var/backups/kube_etcd/etcd-20210101T000000Z.db", "second", 0o600)
				s.Put("/var/backups/kube_etcd/notes.txt", "theirs", 0o600)
				s.Put("/var/lib/etcd/kubexm-snapshot.part.part", "of one that was killed", 0o600)
				if _, err := run("backup"); err != nil {
					t.Fatal(err)
				}
				kept := list()
				if len(kept) != 2 || kept[0] != "etcd-20210101T000000Z.db" {
					t.Errorf("kept: %q", kept)
				}
				if text := read(t, s, "/var/backups/kube_etcd/"+kept[1]); text != "snapshot"+string(sum[:]) {
					t.Errorf("it is %q", text)
				}
				s.Put("/given", "snapshat"+string(sum[:]), 0o600)
				if _, err := run("backup"); err == nil || !strings.Contains(err.Error(), "does not have the checksum") {
					t.Errorf("a damaged one: %v", err)
				}
				if is := list(); len(is) != 2 || is[1] != kept[1] {
					t.Errorf("after a damaged one: %q", is)
				}
				if text := read(t, s, "/var/backups/kube_etcd/etcd-backup.prom"); !strings.HasPrefix(text, "kubexm_etcd_backup_success 0\nkubexm_etcd_backup_last_success_timestamp_seconds 1") {
					t.Errorf("metrics: %q", text)
				}
				s.Put("/programs/df", "#!/bin/sh\necho; echo /dev/x 9 9 50000 1% /\n", 0o755)
				if _, err := run("backup"); err == nil || !strings.Contains(err.Error(), "/var/lib/etcd has 50000 KiB free, and a snapshot of etcd needs 65536 KiB") {
					t.Errorf("without space: %v", err)
				}
				if left, _ := filepath.Glob(s.Path("/var/lib/etcd/*part*")); left != nil {
					t.Errorf("left: %q", left)
				}
			})
		}
	}
}

func TestTimedDefrag(t *testing.T) {
	const (
		well   = "case \"$1 $2\" in\n'endpoint status') printf '[{\"Endpoint\":\"https://127.0.0.1:2379\",\"Status\":{\"header\":{\"cluster_id\":1,\"member_id\":17000000000000000001,\"revision\":3},\"version\":\"3.5.24\",\"leader\":%s,\"dbSize\":%s,\"raftIndex\":7,\"dbSizeInUse\":1000000}}]\\n' "
		others = ";;\n'member list') echo 'ebec21ee1da40001, started, node1, https://10.0.0.11:2380, https://10.0.0.11:2379, false'; echo '1f, started, node2, https://10.0.0.12:2380, https://10.0.0.12:2379, true'; " +
			"echo '2f, started, node3, https://10.0.0.13:2380, https://10.0.0.13:2379, false';;\nesac\n"
	)
	for name, c := range map[string]struct{ ctl, want, fails string }{
		"leads":   {well + "17000000000000000001 9000000" + others, "endpoint health|endpoint status|member list|move-leader 2f|defrag|endpoint status|endpoint health", ""},
		"follows": {well + "5 9000000" + others, "endpoint health|endpoint status|defrag|endpoint status|endpoint health", ""},
		"dense":   {well + "5 1900000" + others, "endpoint health|endpoint status", ""},
		"unwell":  {"exit 1\n", "endpoint health", "not all members of etcd are well"},
	} {
		for _, shell := range runnertest.Shells() {
			t.Run(shell+"/"+name, func(t *testing.T) {
				t.Parallel()
				_, run := care(t, shell, timed, c.ctl)
				asked, err := run("defrag")
				if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
					t.Errorf("it ends with %v", err)
				}
				var got []string
				for l := range strings.Lines(asked) {
					var words []string
					for _, w := range strings.Fields(l) {
						if !strings.HasPrefix(w, "-") && w != "json" && w != "simple" {
							words = append(words, w)
						}
					}
					got = append(got, strings.Join(words, " "))
				}
				if is := strings.Join(got, "|"); is != c.want {
					t.Errorf("asked %s\nwant  %s", is, c.want)
				}
			})
		}
	}
}

func read(t *testing.T, s *runnertest.Sandbox, path string) string {
	t.Helper()
	out, err := s.Runner().Sh(t.Context(), "cat "+path)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
