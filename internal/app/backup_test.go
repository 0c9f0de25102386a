package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pkg/sftp"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/pkg/backup/place"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/connector/sshtest"
)

// TestBackupSFTP keeps backups on a server that nobody knows, and makes the cluster again from the newest when all else is lost.
func TestBackupSFTP(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	s := sshtest.Start(t, sshtest.Config{Password: "x", SFTP: func(c io.ReadWriteCloser) {
		if s, err := sftp.NewServer(c); err == nil {
			_ = s.Serve()
		}
	}})
	path := filepath.Join(t.TempDir(), "backups")
	recipient, keys := recoveryKey(t)
	bubble(t, func(t *testing.T) {
		w := newWorld(t, edited(t, row(t, "row1"), fmt.Sprintf(`{backup: {recipients: [%s], keep: {last: 1},
			targets: [{sftp: {address: %s, port: %d, user: backup, password: x, path: %s}}]}}`, recipient, s.Address, s.Port, path)), "")
		_, err := w.attempt(t.Context()).create()
		w.must(err)
		take := func(mayTrust func(context.Context, []connector.HostKey) error) (taken *app.Backup, told string, err error) {
			a := w.attempt(t.Context())
			a.MayTrust = mayTrust
			taken, err = a.App.Backup(a.ctx, a.Request, a.Observer, app.BackupOptions{})
			return taken, strings.Join(a.Notices, "\n"), err
		}
		if _, _, err := take(func(context.Context, []connector.HostKey) error { return errors.New("no") }); !errors.Is(err, connector.ErrHostKey) {
			t.Errorf("a server that is not trusted: %v", err)
		}
		w.note("before")
		for n := range 2 {
			taken, told, err := take(nil)
			w.must(err)
			if strings.Contains(told, "seen for the first time") != (n == 0) || taken.Places[0] != fmt.Sprintf("sftp://backup@%s:%d%s", s.Address, s.Port, path) || len(taken.Expired) != n {
				t.Errorf("%+v; %s", taken, told)
			}
		}
		w.note("after")
		a := w.attempt(t.Context())
		all, err := a.App.Backups(a.ctx, a.Request, a.Observer, nil)
		if there, _ := place.Dir(path).List(t.Context(), "row1"); err != nil || len(all) != 1 || len(there) != 1 || there[0].Name != all[0].Name {
			t.Errorf("%v, %v; there is %v", all, err, there)
		}
		if m, err := a.App.Manifest(a.ctx, a.Request, a.Observer, "latest", keys); err != nil || m.Cluster != "row1" {
			t.Errorf("%v, %v", m, err)
		}
		w.lostAll(t)
		w.must(w.restoreFrom("latest", keys, 0))
		w.whole(t)
	})
}
