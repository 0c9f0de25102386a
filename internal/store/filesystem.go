package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// remote tells file systems that are shared with other machines, by the names that /proc/self/mountinfo has for them. SQLite's
// log needs memory that all processes share, and locks that work; over a network there is none of the first, and
// nobody can tell whether there is the second (https://www.sqlite.org/wal.html, https://www.sqlite.org/howtocorrupt.html).
func remote(kind string) bool {
	switch kind {
	case "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "coda", "gfs2", "lustre", "ocfs2", "vboxsf",
		"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.davfs", "fuse.smbnetfs", "fuse.curlftpfs", "fuse.vmhgfs-fuse", "fuse.juicefs":
		return true
	}
	return false
}

// checkFileSystem refuses a directory on a file system that others have, too.
func checkFileSystem(dir string, kind func(string) (string, error)) error {
	if kind == nil {
		kind = mounted
	}
	is, err := kind(dir)
	if err != nil {
		return fmt.Errorf("finding out on which file system %s is: %w", dir, err)
	}
	if !remote(is) {
		return nil
	}
	err = fmt.Errorf("%s is on a network file system (%s), where neither the records nor the lock of a cluster are safe", dir, is)
	return fault.Exit(fault.Advise(err, "use a directory on a local disk: --workdir DIR; move what is in the old one there, if there is anything"), fault.ExitUsage)
}

// mounted looks the kind of a directory's file system up in the table of mounts; one that does not exist is on that of the
// nearest that does. Empty: not known. statfs(2) would not tell which program serves one of FUSE.
func mounted(dir string) (string, error) {
	for {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			dir = real
			break
		}
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		return "", err
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return kindIn(string(table), dir), err
}

// kindIn finds the file system of a directory in a table of mounts (proc_pid_mountinfo(5)): the last one of the longest path.
func kindIn(table, dir string) (kind string) {
	longest := 0
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(table) {
		mount, source, _ := strings.Cut(line, " - ")
		fields, of := strings.Fields(mount), strings.Fields(source)
		if len(fields) < 5 || len(of) == 0 {
			continue
		}
		at := unescape.Replace(fields[4])
		if within := at == "/" || dir == at || strings.HasPrefix(dir, at+"/"); within && len(at) >= longest {
			kind, longest = of[0], len(at)
		}
	}
	return kind
}
