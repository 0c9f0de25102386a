package store

import "testing"

// TestKindIn finds the file system of directories in a table of mounts.
func TestKindIn(t *testing.T) {
	const table = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
31 30 0:27 / /home/me/local rw - xfs /dev/vdb rw
32 22 0:28 / /mnt/with\040space rw master:3 - fuse.sshfs me@there: rw
33 22 0:29 / /home/twice rw - nfs server:/x rw
34 33 0:30 / /home/twice rw - tmpfs tmpfs rw
broken
`
	for dir, want := range map[string]string{
		"/": "ext4", "/homes": "ext4", "/home": "nfs4", "/home/me/.kubexm/prod": "nfs4", "/home/me/local/prod": "xfs", "/mnt/with space/prod": "fuse.sshfs",
		"/mnt": "ext4", "/home/twice/x": "tmpfs",
	} {
		if got := kindIn(table, dir); got != want {
			t.Errorf("%s is on %q, want %q", dir, got, want)
		}
	}
	if kind, err := mounted("/proc/self/nothing/there"); kind != "proc" || err != nil {
		t.Errorf("of a directory that is not there: %q, %v", kind, err)
	}
}
