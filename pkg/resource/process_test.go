package resource

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/resource/source"
)

// child is what a child process does: "fetch DIR SERVER" fetches kubelet
// 1.99.7, "lock DIR SERVER" adds entries to the lock file, prints each and waits
// to be killed, "import DIR FILE" does half of an import and waits to be killed, "proxy DIR" fetches from a host that only a proxy reaches.
func child(role string, args []string) error {
	ctx := context.Background()
	switch role {
	case "fetch":
		s, err := testStore(args[0], args[1])
		if err != nil {
			return err
		}
		_, err = s.Fetch(ctx, Artifact{Component: "kubelet", Version: "1.99.7", Arch: "amd64", File: "kubelet"}, nil)
		return err
	case "lock":
		s, err := testStore(args[0], args[1])
		for i := 0; err == nil && i < 20; i++ {
			key := fmt.Sprintf("%d/%d", os.Getpid(), i)
			err = s.editLock(ctx, func(l *lock) error { l.Files[key] = lockedFile{SHA256: key}; return nil })
			fmt.Println(key)
		}
		_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed
		return err
	case "import":
		s, err := Open(args[0], source.Config{Offline: true})
		if err != nil {
			return err
		}
		_, err = s.Import(ctx, args[1], nil, func(done, total int64) {
			if done > total/2 {
				fmt.Println("half")
				_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed
			}
		})
		return err
	case "proxy":
		s, err := Open(args[0], source.Config{Mirrors: map[string]string{"https://": "http://mirror.invalid/"}})
		if err != nil {
			return err
		}
		_, err = s.Fetch(ctx, Artifact{Component: "kubelet", Version: "1.99.7", Arch: "amd64", File: "kubelet"}, nil)
		return err
	}
	return fmt.Errorf("no role %q", role)
}

// spawn returns a child process in a role, which is killed when ctx ends.
func spawn(ctx context.Context, role string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "KUBEXM_TEST_CHILD="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

func TestFetchInTwoProcesses(t *testing.T) {
	sc := newScene(t)
	others := []*exec.Cmd{spawn(t.Context(), "fetch", sc.store.dir, sc.URL), spawn(t.Context(), "fetch", sc.store.dir, sc.URL)}
	for _, cmd := range others {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	mustFetch(t, sc.store, sc.a, program)
	for _, cmd := range others {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(sc.requests(), "\n") + "\n"; strings.Count(got, "kubelet\n") != 1 {
		t.Errorf("downloaded more than once: %q", got)
	}
}

func TestFetchAfterAKill(t *testing.T) {
	sc := newScene(t)
	ctx, kill := newCancel(t)
	cmd := spawn(ctx, "fetch", sc.store.dir, sc.URL)
	sc.first(1, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", etag(program))
		w.Header().Set("Content-Length", fmt.Sprint(len(program)))
		_, _ = w.Write(program[:half])
		w.(http.Flusher).Flush()
		for r.Context().Err() == nil { // until the child has written it all down
			if info, err := os.Stat(sc.file + ".part"); err == nil && info.Size() == int64(half) {
				kill(nil)
				<-r.Context().Done()
			}
		}
	})
	if err := cmd.Run(); err == nil {
		t.Fatal("the child was not killed")
	}
	sc.requests()
	mustFetch(t, sc.store, sc.a, program)
	want := fmt.Sprintf("kubelet bytes=%d-%d %s", half, len(program)-1, etag(program))
	if got := sc.requests(); len(got) != 1 || got[0] != want {
		t.Errorf("requests: got %q, want %q", got, want)
	}
}

func TestLockFileSurvivesKills(t *testing.T) {
	u := newUpstream(t)
	s := openStore(t, t.TempDir(), u)
	var promised []string
	for range 2 {
		var lines []*bufio.Scanner
		var cmds []*exec.Cmd
		for range 2 {
			cmd := spawn(t.Context(), "lock", s.dir, u.URL)
			out, err := cmd.StdoutPipe()
			_, inErr := cmd.StdinPipe()
			if err := errors.Join(err, inErr, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			lines, cmds = append(lines, bufio.NewScanner(out)), append(cmds, cmd)
		}
		for i, l := range lines {
			for range 5 {
				if !l.Scan() {
					t.Fatal("the child gave up")
				}
				promised = append(promised, l.Text())
			}
			_ = cmds[i].Process.Kill()
			_ = cmds[i].Wait()
		}
	}
	l, err := s.readLock()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range promised {
		if l.Files[key].SHA256 != key {
			t.Errorf("%s is lost", key)
		}
	}
	if err := s.editLock(t.Context(), func(*lock) error { return nil }); err != nil {
		t.Errorf("writing after the kills: %v", err)
	}
	nothingLeft(t, s)
}

func TestImportAfterAKill(t *testing.T) {
	from, items := stocked(t)
	file, to := filepath.Join(t.TempDir(), "bundle"), empty(t)
	mustPack(t, from, Bundle{Path: file, Items: items})
	cmd := spawn(t.Context(), "import", to.dir, file)
	out, err := cmd.StdoutPipe()
	_, inErr := cmd.StdinPipe()
	if err := errors.Join(err, inErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(out).Scan() {
		t.Fatal("the child gave up")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if parts, err := filepath.Glob(to.dir + "/*/*/*/*.part"); err != nil || len(parts) == 0 {
		t.Errorf("it was not killed in the midst of a member: %q, %v", parts, err)
	}
	if ok, err := to.Has(pause, "amd64"); ok || err != nil {
		t.Errorf("half of a bundle counts: %v, %v", ok, err)
	}
	if got, err := to.Import(t.Context(), file, nil, nil); err != nil || got.Present == 0 {
		t.Errorf("after the kill: %+v, %v", got, err)
	}
	complete(t, to, items)
}

func TestProxyIsHonoured(t *testing.T) {
	u := newUpstream(t)
	a := mustNew(t, "kubelet", "1.99.7")
	u.publish(t, a, program)
	u.move("/mirror.invalid") // a proxy is asked for the whole URL
	dir := t.TempDir()
	cmd := spawn(t.Context(), "proxy", dir)
	cmd.Env = append(cmd.Env, "HTTP_PROXY="+u.URL, "http_proxy="+u.URL, "NO_PROXY=", "no_proxy=", "KXZONE=")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(a.key())))
	if err != nil || !bytes.Equal(got, program) {
		t.Errorf("the file differs: %v", err)
	}
}
