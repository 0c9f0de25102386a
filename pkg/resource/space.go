package resource

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// CheckSpace returns an error that says what to do when the file system of dir,
// which need not exist yet, has less than need bytes left for this user.
func CheckSpace(dir string, need int64) error {
	free, err := FreeSpace(dir)
	if err != nil || free >= need {
		return err
	}
	return fault.Advise(fmt.Errorf("no space in %s: %s needed, %s free: %w", dir, human.Bytes(need), human.Bytes(free), syscall.ENOSPC), largerStore)
}

// largerStore is what to do when the store has no space left.
const largerStore = "free space there, or choose a folder on a larger disk with --workdir; what is already downloaded is kept"

// explainSpace adds to an error that is for want of space in dir how much is left there, and the next move.
func explainSpace(err error, dir, advice string) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	free, statErr := FreeSpace(dir)
	return fault.Advise(errors.Join(fmt.Errorf("no space in %s, %s free: %w", dir, human.Bytes(free), err), statErr), advice)
}

// FreeSpace is how many bytes the file system of dir, which need not exist yet, has left for this user.
func FreeSpace(dir string) (int64, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return 0, err
	}
	var fs syscall.Statfs_t
	err = syscall.Statfs(dir, &fs)
	for errors.Is(err, os.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = syscall.Statfs(dir, &fs)
	}
	if err != nil {
		return 0, fmt.Errorf("asking for the free space of %s: %w", dir, err)
	}
	return int64(fs.Bavail) * int64(fs.Bsize), nil //nolint:unconvert // of other types elsewhere
}
