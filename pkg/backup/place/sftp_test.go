package place_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/pkg/sftp"
	"go.uber.org/goleak"

	"github.com/kubexm/kubexm/pkg/backup/place"
	"github.com/kubexm/kubexm/pkg/connector"
	"github.com/kubexm/kubexm/pkg/connector/sshtest"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// serveSFTP starts a server of an account that has SFTP and nothing else.
func serveSFTP(t *testing.T, serve func(io.ReadWriteCloser)) (*sshtest.Server, connector.SSHConfig) {
	t.Helper()
	t.Setenv("SSH_AUTH_SOCK", "")
	s := sshtest.Start(t, sshtest.Config{Password: secretKey, SFTP: serve})
	return s, connector.SSHConfig{Address: s.Address, Port: s.Port, User: "backup", Password: secret.New(secretKey), KnownHosts: filepath.Join(t.TempDir(), "known_hosts")}
}

// ofDisk serves the files of this machine.
func ofDisk(options ...sftp.ServerOption) func(io.ReadWriteCloser) {
	return func(c io.ReadWriteCloser) {
		if s, err := sftp.NewServer(c, options...); err == nil {
			_ = s.Serve()
		}
	}
}

// ofMemory serves files that are nowhere else.
func ofMemory(h sftp.Handlers) func(io.ReadWriteCloser) {
	return func(c io.ReadWriteCloser) { _ = sftp.NewRequestServer(c, h).Serve() }
}

// directories are all kinds of them.
func directories(t *testing.T) map[string]func(path string) place.Place {
	t.Helper()
	_, conf := serveSFTP(t, ofDisk())
	return map[string]func(string) place.Place{"of this machine": place.Dir, "of a server": func(path string) place.Place { return place.SFTP(conf, path) }}
}

// TestSFTP also has a server that cannot rename onto what is there.
func TestSFTP(t *testing.T) {
	all := []string{"hardlink@openssh.com", "posix-rename@openssh.com", "statvfs@openssh.com"}
	for name, extensions := range map[string][]string{"all extensions": all, "no extensions": nil} {
		t.Run(name, func(t *testing.T) {
			if err := sftp.SetSFTPExtensions(extensions...); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = sftp.SetSFTPExtensions(all...) })
			s, conf := serveSFTP(t, ofDisk())
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			above := filepath.Join(t.TempDir(), "var")
			path := filepath.Join(above, "backups")
			same(t, place.SFTP(conf, path), "sftp://backup@127.0.0.1:"+strconv.Itoa(s.Port)+path)
			for file, mode := range map[string]os.FileMode{above: os.ModeDir | 0o700, path: os.ModeDir | 0o700, filepath.Join(path, "prod-20261126T130501Z.tar.zst"): 0o600} {
				if info, err := os.Stat(file); err != nil || info.Mode() != mode {
					t.Errorf("%s: %v, %v", file, info, err)
				}
			}
			if hidden, err := filepath.Glob(path + "/.*"); err != nil || len(hidden) != 0 {
				t.Errorf("left: %v, %v", hidden, err)
			}
		})
	}
}

// short answers requests to read in part, as some servers do with large ones.
type short struct{ sftp.FileReader }

// Fileread implements sftp.FileReader.
func (s short) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	f, err := s.FileReader.Fileread(r)
	return readerAt(func(p []byte, at int64) (int, error) { return f.ReadAt(p[:min(len(p), 20_000)], at) }), err
}

type readerAt func([]byte, int64) (int, error)

func (r readerAt) ReadAt(p []byte, at int64) (int, error) { return r(p, at) }

func TestSFTPShortReads(t *testing.T) {
	h := sftp.InMemHandler()
	h.FileGet = short{h.FileGet}
	_, conf := serveSFTP(t, ofMemory(h))
	p := place.SFTP(conf, "/")
	if err := p.Put(t.Context(), backup, gives(big[:1e6])); err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, p, backup); err != nil || !bytes.Equal(got, big[:1e6]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// full has no space left behind the first MB of a file. SFTP has no word for that.
type full struct{ sftp.FileWriter }

// Filewrite implements sftp.FileWriter.
func (d full) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	f, err := d.FileWriter.Filewrite(r)
	return writerAt(func(p []byte, at int64) (int, error) {
		if at > 1<<20 {
			return 0, errors.New("Failure")
		}
		return f.WriteAt(p, at)
	}), err
}

type writerAt func([]byte, int64) (int, error)

func (w writerAt) WriteAt(p []byte, at int64) (int, error) { return w(p, at) }

// TestSFTPFull fails in the middle, with later parts of a file written: nothing of it stays.
func TestSFTPFull(t *testing.T) {
	h := sftp.InMemHandler()
	_, conf := serveSFTP(t, ofMemory(h))
	if err := place.SFTP(conf, "/").Put(t.Context(), backup, gives([]byte("old"))); err != nil {
		t.Fatal(err)
	}
	h.FilePut = full{h.FilePut}
	_, conf = serveSFTP(t, ofMemory(h))
	p := place.SFTP(conf, "/")
	said(t, p.Put(t.Context(), backup, gives(big)), "storing "+backup+" in sftp://backup@127.0.0.1", "Failure", "whether the disk there is full")
	if got, err := read(t, p, backup); err != nil || string(got) != "old" {
		t.Errorf("%q, %v", got, err)
	}
	f, err := connector.SFTP(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if left, err := f.ReadDir("/"); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// cutting does something once that many bytes were received.
type cutting struct {
	io.ReadWriteCloser
	left int
	cut  func()
}

func (c *cutting) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	if c.left -= n; c.left < 0 {
		c.cut()
	}
	return n, err
}

// TestSFTPCut has the server go, or its program, or both do nothing any more, in the middle of a backup.
func TestSFTPCut(t *testing.T) {
	stopped, over := errors.New("stopped by the user"), make(chan struct{})
	for name, tt := range map[string]struct {
		cut         func(s *sshtest.Server, c io.Closer, stop context.CancelCauseFunc)
		err, advice string
	}{
		"server":  {func(s *sshtest.Server, _ io.Closer, _ context.CancelCauseFunc) { s.Drop() }, "connection to 127.0.0.1 (backup@127.0.0.1:", "check that the machine is up"},
		"program": {func(_ *sshtest.Server, c io.Closer, _ context.CancelCauseFunc) { c.Close() }, "connection lost", "the log of sshd on 127.0.0.1"},
		"hangs":   {func(_ *sshtest.Server, _ io.Closer, stop context.CancelCauseFunc) { stop(stopped); <-over }, stopped.Error(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			ctx, stop := context.WithCancelCause(t.Context())
			var s *sshtest.Server
			s, conf := serveSFTP(t, func(c io.ReadWriteCloser) { ofDisk()(&cutting{c, 3 << 20, func() { tt.cut(s, c, stop) }}) })
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			said(t, place.SFTP(conf, path).Put(ctx, backup, gives(big)), "storing "+backup+" in sftp://", tt.err, tt.advice)
			if name == "hangs" {
				close(over)
			}
			if all, err := place.Dir(path).List(t.Context(), "prod"); err != nil || len(all) != 0 {
				t.Errorf("%v, %v", all, err)
			}
		})
	}
}

// TestSFTPRefused meets servers that do not let in, or do not let write.
func TestSFTPRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, good := serveSFTP(t, ofDisk())
	_, readOnly := serveSFTP(t, ofDisk(sftp.ReadOnly()))
	_, none := serveSFTP(t, nil)
	before, err := connector.ShownKey(t.Context(), readOnly)
	if err != nil {
		t.Fatal(err)
	}
	before.Address = good.Endpoint()
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		conf              connector.SSHConfig
		change            func(*connector.SSHConfig)
		path, err, advice string
	}{
		"wrong password":   {good, func(c *connector.SSHConfig) { c.Password = secret.New("x") }, dir, "cannot log in: the machine refused password", "check user and password"},
		"another host key": {good, func(c *connector.SSHConfig) { c.HostKey = before.Fingerprint }, dir, "host key refused", "if the machine was reinstalled"},
		"unknown host key": {none, func(c *connector.SSHConfig) { c.Strict = true }, dir, "it is not known yet", "then record it"},
		"changed host key": {good, func(c *connector.SSHConfig) {
			c.KnownHosts = filepath.Join(t.TempDir(), "known_hosts")
			if err := connector.Trust(c.KnownHosts, []connector.HostKey{before}); err != nil {
				t.Fatal(err)
			}
		}, dir, "host key refused: the machine shows", "ssh-keygen -R"},
		"nobody there": {good, func(c *connector.SSHConfig) { c.Port = 1 }, dir, "not reachable: connection refused", "check that sshd runs and listens on port 1"},
		"no SFTP":      {none, func(c *connector.SSHConfig) { c.KnownHosts = filepath.Join(t.TempDir(), "known_hosts") }, dir, "starting SFTP on 127.0.0.1", "give backup SFTP"},
		"may not":      {readOnly, nil, dir, "permission denied", "let backup of 127.0.0.1 write to " + dir},
		"no directory": {good, nil, file, "not a directory", "name a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.change != nil {
				tt.change(&tt.conf)
			}
			err := place.SFTP(tt.conf, tt.path).Put(t.Context(), backup, gives(big))
			said(t, err, "storing "+backup+" in sftp://backup@127.0.0.1:", tt.err, tt.advice)
		})
	}
}
