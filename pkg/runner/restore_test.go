package runner_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/runner/runnertest"
)

// disturb lets a program of the machine fail, and returns what fixes it.
func disturb(t *testing.T, m machine, name string) (mend func()) {
	t.Helper()
	if h, ok := m.(*runnertest.Host); ok {
		was := h.Commands[name]
		h.Commands[name] = func(c *runnertest.Call) int { return c.Failf(1, "No space left on device") }
		return func() { h.Commands[name] = was }
	}
	m.Put("/programs/"+name, "#!/bin/sh\necho No space left on device >&2; exit 1\n", 0o755)
	return func() { must(t, m.Runner().Remove(t.Context(), "/programs/"+name)) }
}

// TestRestoreLeavesEditsOfOthers has files that others edit after kubexm did.
func TestRestoreLeavesEditsOfOthers(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		m.Put("/etc/hosts", "127.0.0.1 localhost\n", 0o640)
		m.Put("/etc/fstab", "/dev/vda1 / ext4\n/swap none swap sw\n", 0o644)
		edit := func(p, text string) runner.File {
			return runner.File{Path: p, Data: []byte(text), Mode: 0o640, Edit: "block " + p + "\t# BEGIN it\t# END [it]"}
		}
		const block = "# BEGIN it\n10.0.0.1 node1\n# END [it]\n"
		must(t, r.WriteFiles(t.Context(), edit("/etc/hosts", "127.0.0.1 localhost\n"+block), edit("/etc/new/ours", block),
			edit("/etc/new/shared", block), edit("/etc/torn", "a\n"+block)))
		_, err := r.Change(t.Context(), `note 'fstab /etc/fstab'; sed -i 's/^[^#].*[[:space:]]swap[[:space:]]/# kubexm: &/' /etc/fstab
echo /dev/vdb1 /data xfs >>/etc/fstab; echo 10.9.9.9 nas >>/etc/hosts; echo 10.9.9.9 nas >>/etc/new/shared; printf '# BEGIN it\na\\b  c\n# BEGIN it' >/etc/torn`)
		must(t, err)
		must(t, r.WriteFiles(t.Context(), edit("/etc/hosts", "127.0.0.1 localhost\n"+block+"10.9.9.9 nas\n"))) // once more
		must(t, r.Restore(t.Context(), nil))
		expect(t, r, "/etc/hosts file 640 root:root 127.0.0.1 localhost\n10.9.9.9 nas", "/etc/fstab file 644 root:root /dev/vda1 / ext4\n/swap none swap sw\n/dev/vdb1 /data xfs",
			"/etc/new/ours missing", "/etc/new/shared file 640 root:root 10.9.9.9 nas", "/var/lib/kubexm missing")
		torn, err := r.ReadFiles(t.Context(), "/etc/torn")
		must(t, err)
		if got := string(torn["/etc/torn"].Data); got != "# BEGIN it\na\\b  c\n# BEGIN it\n" {
			t.Errorf("got %q", got)
		}
	})
}

// TestRestoreLosesNothing has a disk to which nothing can be copied, and no power
// when a file was half put back.
func TestRestoreLosesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		m.Put("/etc/kept", "original\n", 0o640)
		m.Put("/etc/shared", "theirs\n", 0o644)
		must(t, r.WriteFiles(t.Context(), runner.File{Path: "/etc/kept", Data: []byte("changed"), Mode: 0o644}, runner.File{Path: "/etc/ours", Mode: 0o644},
			runner.File{Path: "/etc/shared", Data: []byte("theirs\nB\nE\n"), Mode: 0o644, Edit: "block /etc/shared\tB\tE"}))
		m.Put("/etc/ours.kubexm", "half", 0o600)
		m.Put("/etc/.ours.kubexm.4711", "half", 0o600)
		mend := disturb(t, m, "cp")
		if err := r.Restore(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "not put back: /etc/shared /etc/kept") {
			t.Errorf("got %v", err)
		}
		expect(t, r, "/etc/kept file 644 root:root changed", "/etc/shared file 644 root:root theirs\nB\nE", "/etc/shared.kubexm missing",
			"/var/lib/kubexm/before/etc/kept file 640 root:root original", "/etc/ours missing", "/etc/ours.kubexm missing")
		mend()
		m.Put("/etc/kept.kubexm", "half", 0o600)
		must(t, r.Restore(t.Context(), nil))
		expect(t, r, "/etc/kept file 640 root:root original", "/etc/kept.kubexm missing", "/etc/shared file 644 root:root theirs", "/var/lib/kubexm missing")
	})
}

// TestNoHalfFiles writes to a disk that has no room.
func TestNoHalfFiles(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		for _, program := range []string{"dd", "tee", "chmod", "mv"} {
			mend := disturb(t, m, program)
			check := func(err error) {
				if err == nil || !strings.Contains(err.Error(), "No space left") {
					t.Errorf("%s: got %v", program, err)
				}
			}
			if program != "tee" { // writes uploads alone
				check(r.WriteFiles(t.Context(), runner.File{Path: "/etc/key", Data: []byte("private"), Mode: 0o600}))
			}
			if program != "dd" { // which only passes them on
				check(r.Upload(t.Context(), upload("/etc/tool", "program")))
			}
			mend()
			expect(t, r, "/etc/key missing", "/etc/.key.kubexm.* missing", "/etc/tool missing", "/etc/.tool.kubexm.* missing")
		}
	})
}

// TestNotesAreOnTheDiskFirst lists what is brought to the disk, and when.
func TestNotesAreOnTheDiskFirst(t *testing.T) {
	onEach(t, func(t *testing.T, m machine, r *runner.Runner) {
		const names, plain = "synced() { f=; for p in \"$@\"; do f=\"$f $p\"; done; [ -e /etc/b ] && f=\"$f late\"; echo \"$f\" >>/log; }\n", "synced \"$@\"; [ $# = 0 ]"
		m.Put("/programs/sync", "#!/bin/sh\n"+names+plain, 0o755)
		if h, ok := m.(*runnertest.Host); ok {
			h.Commands["sync"] = func(c *runnertest.Call) int {
				text, _ := h.Get("/log")
				if text += strings.Join(append([]string{""}, c.Args[1:]...), " "); h.Mode("/etc/b") != 0 {
					text += " late"
				}
				h.Put("/log", text+"\n", 0o644)
				return min(1, len(c.Args)-1) // an old one
			}
		}
		m.Put("/etc/a", "was\n", 0o644)
		files := []runner.File{{Path: "/etc/a", Mode: 0o644}, {Path: "/etc/b", Mode: 0o644}, {Path: "/etc/c", Mode: 0o644}}
		must(t, r.WriteFiles(t.Context(), files...))
		must(t, r.WriteFiles(t.Context(), files...)) // nothing is noted
		_, err := r.Change(t.Context(), "note one; note two; note one")
		must(t, err)
		log, err := r.Sh(t.Context(), "cat /log")
		must(t, err)
		want := " /var/lib/kubexm/before/etc/a.part\n\n /var/lib/kubexm/ledger\n\n /var/lib/kubexm/ledger late\n late\n /var/lib/kubexm/ledger late\n late"
		if diff := cmp.Diff(want, log); diff != "" {
			t.Error(diff)
		}
	})
}

// TestRoomIsAddedUp uploads to directories of one file system.
func TestRoomIsAddedUp(t *testing.T) {
	a, b := upload("/opt/a/one", "x"), upload("/srv/b/two", "x")
	a.Size, b.Size = 25<<30, 25<<30 // of 38 GiB
	if err := runnertest.Debian12("node1").Runner().Upload(t.Context(), a, b); status(err) != 28 || !strings.Contains(err.Error(), "no space: /srv/b has ") {
		t.Errorf("got %v", err)
	}
	// What is there of a file needs room no more, but while it is copied.
	h := runnertest.Debian12("node1")
	h.Put("/opt/a/.one.kubexm.4711", "x", 0o600)
	a.Size, a.Part = 50<<30, runner.Part{Path: "/opt/a/.one.kubexm.4711", Size: 25 << 30}
	if err := h.Runner().Upload(t.Context(), a); status(err) == 28 {
		t.Errorf("got %v", err)
	}
}

// TestRestoreTurnsOthersOn has, on real shells, a package to install again, for which the lists must be
// fetched first, one that is there, and services of which one is gone.
func TestRestoreTurnsOthersOn(t *testing.T) {
	for _, shell := range runnertest.Shells() {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := runnertest.NewSandbox(t, shell)
			const log = "#!/bin/sh\necho \"${0##*/} $*\" >>/log\n"
			s.Put("/programs/systemctl", log+"[ \"$2\" != gone ] || exit 5\n", 0o755)
			s.Put("/programs/apt-get", log+"case \"$4\" in update) touch /lists;; install) [ -e /lists ];; esac\n", 0o755)
			s.Put("/programs/dpkg-query", "#!/bin/sh\nif [ \"$4\" = there ]; then echo installed; else echo config-files; fi\n", 0o755)
			r := s.Runner()
			_, err := r.Change(t.Context(), "note 'lost timesyncd'; note 'lost there'; note 'enabled ufw'; note 'active ufw'; note 'active gone'")
			must(t, err)
			must(t, r.Restore(t.Context(), nil))
			got, err := r.Sh(t.Context(), "cat /log")
			must(t, err)
			const get, install = "apt-get -q -o DPkg::Lock::Timeout=300 ", "install -y --no-install-recommends --no-remove timesyncd\n"
			want := get + install + get + "update\n" + get + install + "systemctl -q enable ufw\nsystemctl start gone\nsystemctl start ufw"
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			expect(t, r, "/var/lib/kubexm missing")
		})
	}
}

// TestRestoreDirectories has directories of others, one of which delete has removed as it was empty.
func TestRestoreDirectories(t *testing.T) {
	onEach(t, func(t *testing.T, _ machine, r *runner.Runner) {
		_, err := r.Sh(t.Context(), "mkdir -p /srv/a /srv/b; chown nobody:nogroup /srv/a /srv/b; chmod 750 /srv/a /srv/b")
		must(t, err)
		for _, d := range []string{"/srv/a", "/srv/b"} {
			_, err = r.Change(t.Context(), "note 'mode "+d+"\t750\t65534:65534'; chown 0:0 "+d+"; chmod 00700 "+d)
			must(t, err)
		}
		_, err = r.Sh(t.Context(), "rmdir /srv/b")
		must(t, err)
		must(t, r.Restore(t.Context(), nil))
		expect(t, r, "/srv/a directory 750 nobody:nogroup", "/srv/b directory 750 nobody:nogroup")
	})
}
