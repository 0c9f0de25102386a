package runner_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// TestScriptsAreClean has shellcheck read the scripts.
func TestScriptsAreClean(t *testing.T) {
	t.Parallel()
	check, err := exec.LookPath("shellcheck")
	if err != nil {
		t.Skip("no shellcheck on this machine: make deps installs it")
	}
	files, err := filepath.Glob("scripts/*.sh")
	must(t, err)
	if out, err := exec.CommandContext(t.Context(), check, files...).CombinedOutput(); err != nil || len(files) == 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestTornLedger has a ledger whose last line a full disk has torn: at any place, that of the newline included.
func TestTornLedger(t *testing.T) {
	for name, torn := range map[string]string{"early": "path /etc/oth", "late": "path /etc/new"} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
				m.Put("/etc/oth", "theirs", 0o644)
				m.Put("/var/lib/kubexm/ledger", "dir /srv/x\n"+torn, 0o644)
				m.Put("/var/lib/kubexm/before/keep", "", 0o644)
				whole, err := r.Ledger(t.Context())
				must(t, err)
				if diff := cmp.Diff([]string{"dir /srv/x"}, whole); diff != "" {
					t.Error(diff)
				}
				must(t, r.WriteFiles(t.Context(), runner.File{Path: "/etc/new", Data: []byte("ours"), Mode: 0o644}))
				whole, err = r.Ledger(t.Context())
				must(t, err)
				if diff := cmp.Diff([]string{"dir /srv/x", "path /etc/new"}, whole); diff != "" {
					t.Error(diff)
				}
				must(t, r.Restore(t.Context(), nil))
				expect(t, r, "/etc/new missing", "/etc/oth file 644 root:root theirs", "/var/lib/kubexm missing")
			})
		})
	}
}

// TestFullDiskTearsNoOther fills, on real shells, the disk of the ledger in the middle of a line.
func TestFullDiskTearsNoOther(t *testing.T) {
	for _, shell := range runnertest.Shells() {
		t.Run(shell, func(t *testing.T) {
			s := runnertest.NewSandbox(t, shell)
			r, dir := s.Runner(), s.Path(runner.StateDir)
			must(t, os.MkdirAll(dir, 0o755))
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
				t.Skipf("a small file system is needed, and only root may mount one: %v", err)
			}
			t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
			// A page of the ledger is all but full.
			line := "path /none/" + strings.Repeat("x", 4096-len("path /none/")-len("\npath /et")-1) + "\n"
			must(t, os.Mkdir(filepath.Join(dir, "before"), 0o755))
			must(t, os.WriteFile(filepath.Join(dir, "ledger"), []byte(line), 0o644))
			ballast := filepath.Join(dir, "ballast")
			if err := os.WriteFile(ballast, make([]byte, 128<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("the disk is not full: %v", err)
			}
			s.Put("/et", "theirs", 0o644)
			one, two := runner.File{Path: "/etc/one", Mode: 0o644}, runner.File{Path: "/etc/two", Mode: 0o644}
			if err := r.WriteFiles(t.Context(), one); err == nil {
				t.Fatal("the ledger had room")
			}
			text, err := os.ReadFile(filepath.Join(dir, "ledger"))
			must(t, err)
			if torn := strings.TrimPrefix(string(text), line); torn == "" || strings.HasSuffix(torn, "\n") {
				t.Fatalf("no line is torn: %q", torn)
			}
			expect(t, r, "/etc/one missing")
			must(t, os.Remove(ballast))
			must(t, r.WriteFiles(t.Context(), two))
			got, err := r.Ledger(t.Context())
			must(t, err)
			if diff := cmp.Diff([]string{strings.TrimSpace(line), "path /etc/two"}, got); diff != "" {
				t.Error(diff)
			}
			must(t, r.Restore(t.Context(), nil))
			expect(t, r, "/etc/two missing", "/et file 644 root:root theirs")
		})
	}
}

// TestUploadFillsDisk fills, on real shells, the disk while a file comes that there was room for at first.
func TestUploadFillsDisk(t *testing.T) {
	for _, shell := range runnertest.Shells() {
		t.Run(shell, func(t *testing.T) {
			s := runnertest.NewSandbox(t, shell)
			dir := s.Path("/opt/bin")
			must(t, os.MkdirAll(dir, 0o755))
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
				t.Skipf("a small file system is needed, and only root may mount one: %v", err)
			}
			t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
			s.Put("/opt/bin/tool", "old", 0o755)
			text := strings.Repeat("0123456789", 50_000)
			u := upload("/opt/bin/tool", text)
			u.Data = io.MultiReader(strings.NewReader(text[:100_000]), filling(filepath.Join(dir, "ballast")), strings.NewReader(text[100_000:]))
			if err := s.Runner().Upload(t.Context(), u); status(err) != 74 || !strings.Contains(err.Error(), "No space left on device") {
				t.Errorf("got %v", err)
			}
			expect(t, s.Runner(), "/opt/bin/tool file 755 root:root old", "/opt/bin/.tool.kubexm.* missing")
		})
	}
}

// filling is a reader of nothing that fills the disk of a file.
type filling string

func (f filling) Read([]byte) (int, error) {
	if err := os.WriteFile(string(f), make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		return 0, fmt.Errorf("the disk is not full: %w", err)
	}
	return 0, io.EOF
}

// TestUndo takes back some of what is in the ledger, and the rest later.
func TestUndo(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		m.Put("/etc/kept", "original\n", 0o640)
		m.Put("/etc/shared", "theirs\n", 0o644)
		must(t, r.WriteFiles(t.Context(), runner.File{Path: "/etc/kept", Data: []byte("ours"), Mode: 0o644}, runner.File{Path: "/etc/own dir/file", Mode: 0o644},
			runner.File{Path: "/etc/stays/file", Data: []byte("x"), Mode: 0o644}, runner.File{Path: "/etc/shared", Data: []byte("theirs\nB\nE\n"), Mode: 0o644, Edit: "block /etc/shared\tB\tE"}))
		must(t, r.Undo(t.Context(), nil, nil))
		gone := []string{"path /etc/kept", "path /etc/own dir/file", "dir /etc/own dir", "block /etc/shared\tB\tE", "path /etc/none"}
		for range 2 { // done again, it does no harm
			must(t, r.Undo(t.Context(), nil, gone))
			expect(t, r, "/etc/kept file 640 root:root original", "/etc/shared file 644 root:root theirs", "/etc/stays/file file 644 root:root x", "/var/lib/kubexm/before/etc/kept missing")
		}
		left, err := r.Ledger(t.Context())
		must(t, err)
		if diff := cmp.Diff([]string{"dir /etc/stays", "path /etc/stays/file"}, left); diff != "" {
			t.Error(diff)
		}
		have, err := r.Exists(t.Context(), "/etc/own dir")
		must(t, err)
		if have != nil {
			t.Error("the directory stays")
		}
		// What is there meanwhile is what a later change finds.
		must(t, r.Remove(t.Context(), "/etc/kept"))
		m.Put("/var/lib/kubexm/before/etc/kept", "of a crash", 0o644)
		must(t, r.WriteFiles(t.Context(), runner.File{Path: "/etc/kept", Mode: 0o644}))
		must(t, r.Restore(t.Context(), nil))
		expect(t, r, "/etc/kept missing", "/etc/stays missing", "/var/lib/kubexm missing")
	})
}

// TestUndoFails keeps what it could not put back.
func TestUndoFails(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		m.Put("/etc/kept", "original\n", 0o640)
		must(t, r.WriteFiles(t.Context(), runner.File{Path: "/etc/kept", Data: []byte("ours"), Mode: 0o644}))
		mend := disturb(t, m, "cp")
		if err := r.Undo(t.Context(), nil, []string{"path /etc/kept"}); err == nil || !strings.Contains(err.Error(), "not put back: /etc/kept") {
			t.Errorf("got %v", err)
		}
		mend()
		expect(t, r, "/var/lib/kubexm/ledger file 644 root:root path /etc/kept")
		must(t, r.Undo(t.Context(), nil, []string{"path /etc/kept"}))
		expect(t, r, "/etc/kept file 640 root:root original")
	})
}

// TestRevert brings back programs that an upload has replaced.
func TestRevert(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		const one, two, same, gone = "/opt/bin/one", "/opt/bin/two", "/opt/bin/same", "/opt/bin/gone"
		for _, p := range []string{one, two, same, gone} {
			m.Put(p, "v1 of "+p, 0o755)
		}
		m.Put(two, "v1 of "+two, 0o700)
		was, err := r.Sums(t.Context(), one, two, same)
		must(t, err)
		for range 2 { // an answer that was lost lets it be done again
			must(t, r.Upload(t.Context(), upload(one, "v2"), upload(two, "v2")))
		}
		expect(t, r, one+" file 755 root:root v2", "/var/lib/kubexm/previous"+one+" file 755 root:root v1 of "+one, "/var/lib/kubexm/previous"+two+" file 700 root:root v1 of "+two)
		for range 2 {
			must(t, r.Revert(t.Context(), was))
			expect(t, r, one+" file 755 root:root v1 of "+one, two+" file 700 root:root v1 of "+two, same+" file 755 root:root v1 of "+same,
				"/opt/bin/.*.kubexm.* missing", "/var/lib/kubexm/previous/opt/bin/* missing")
		}
		again, err := r.Sums(t.Context(), one, two, same)
		must(t, err)
		if diff := cmp.Diff(was, again); diff != "" {
			t.Error(diff)
		}
		// At most one version is kept, and none that nobody asks for is brought back.
		must(t, r.Upload(t.Context(), upload(one, "v2")))
		must(t, r.Upload(t.Context(), upload(one, "v3")))
		expect(t, r, "/var/lib/kubexm/previous"+one+" file 755 root:root v2")
		if err := r.Revert(t.Context(), was); err == nil || !strings.Contains(err.Error(), one+": its previous version is not kept") {
			t.Errorf("got %v", err)
		}
		expect(t, r, one+" file 755 root:root v3")
		must(t, r.Restore(t.Context(), nil))
		expect(t, r, one+" file 755 root:root v1 of "+one, "/var/lib/kubexm missing")
	})
}

// TestUploadKilled cuts the power, or kills the script, between any two commands: either version of a program is there,
// whole, and both ways are open.
func TestUploadKilled(t *testing.T) {
	t.Parallel()
	const p, v1 = "/opt/bin/tool", "v1, a little longer"
	run := func(after int64) (*runnertest.Host, int64, error) {
		h := runnertest.Debian12("node1")
		h.Put(p, v1, 0o755)
		h.Cut = &runnertest.Kill{After: after}
		err := h.Runner().Upload(t.Context(), upload(p, "v2"))
		n := h.Cut.Count()
		h.Cut = nil
		return h, n, err
	}
	_, all, err := run(0)
	must(t, err)
	was := map[string]runner.Sum{p: {SHA256: sum(v1), Mode: 0o755}}
	for n := int64(1); n < all; n++ {
		h, _, _ := run(n)
		if text, _ := h.Get(p); text != v1 && text != "v2" {
			t.Errorf("cut after %d commands: %q", n, text)
		}
		must(t, h.Runner().Upload(t.Context(), upload(p, "v2")))
		must(t, h.Runner().Revert(t.Context(), was))
		for after := int64(1); ; after++ {
			must(t, h.Runner().Upload(t.Context(), upload(p, "v2")))
			h.Cut = &runnertest.Kill{After: after}
			err := h.Runner().Revert(t.Context(), was)
			h.Cut = nil
			if text, _ := h.Get(p); text != v1 && text != "v2" {
				t.Fatalf("reverting was cut after %d commands: %q", after, text)
			}
			must(t, h.Runner().Revert(t.Context(), was))
			if err == nil || n%8 > 0 { // all moments of some are enough
				break
			}
		}
		if text, _ := h.Get(p); text != v1 {
			t.Errorf("cut after %d commands: %q came back", n, text)
		}
	}
}

// TestLock has two who want one host.
func TestLock(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		one, two := runner.Holder{Token: "one", Who: "ann@laptop, process 1"}, runner.Holder{Token: "two", Who: "bob"}
		held := func(err error, who string) {
			t.Helper()
			if other := (*runner.HeldError)(nil); !errors.As(err, &other) || other.Who != who {
				t.Errorf("got %v", err)
			}
		}
		expire := func(script string) {
			t.Helper()
			_, err := r.Sh(t.Context(), `f=/run/kubexm/lock; { read -r t; read -r n; read -r h; } <$f; printf '%s\n' "$t" "$(`+script+`)" "$h" >$f`)
			must(t, err)
		}
		must(t, r.Lock(t.Context(), one))
		must(t, r.Lock(t.Context(), one)) // renewed
		held(r.Lock(t.Context(), two), one.Who)
		must(t, r.Unlock(t.Context(), two.Token)) // not theirs
		if by, err := r.LockedBy(t.Context()); err != nil || by != one {
			t.Errorf("held by %v, %v", by, err)
		}
		mode, err := r.Sh(t.Context(), "ls -A /run/kubexm; stat -c %a /run/kubexm/lock")
		if err != nil || mode != "lock\n600" {
			t.Errorf("got %q, %v", mode, err)
		}
		expire("echo 1") // it died
		must(t, r.Lock(t.Context(), two))
		held(r.Lock(t.Context(), one), two.Who)
		expire("echo $((n+100000))") // of before the last boot
		must(t, r.Lock(t.Context(), one))
		must(t, r.WriteFiles(t.Context(), runner.File{Path: "/etc/ours", Mode: 0o644}))
		must(t, r.Restore(t.Context(), nil))
		expect(t, r, "/etc/ours missing", "/var/lib/kubexm missing")
		held(r.Lock(t.Context(), two), one.Who)
		must(t, r.Unlock(t.Context(), ""))
		expect(t, r, "/run/kubexm missing")
		if by, err := r.LockedBy(t.Context()); err != nil || by.Who != "" {
			t.Errorf("held by %v, %v", by, err)
		}
		must(t, r.Unlock(t.Context(), one.Token))
		m.Put("/run/kubexm/lock", "", 0o600) // the power was cut
		must(t, r.Lock(t.Context(), two))
	})
}
