package resource

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubexm/kubexm/pkg/util/fault"
)

// Store is the folder of everything fetched. It is safe for concurrent use. A
// step may hold one: it marshals to {}, so plans do not depend on where it is.
type Store struct {
	dir    string
	source Source
	doors  doors
	retry  retry
	read   sync.Map // of packages that were read, by checksum
}

// Open returns the store in dir, which is made when first needed.
func Open(dir string, source Source) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if source.Zone == "" {
		source.Zone = os.Getenv("KXZONE")
	}
	if _, ok := zones[source.Zone]; !ok {
		known := slices.DeleteFunc(slices.Sorted(maps.Keys(zones)), func(z string) bool { return z == "" })
		return nil, fault.Advise(fmt.Errorf("source zone %q is not known", source.Zone),
			"leave spec.source.zone and KXZONE empty or use one of: "+strings.Join(known, ", "))
	}
	all, err := newDoors(source)
	if err != nil {
		return nil, err
	}
	return &Store{
		dir: dir, source: source, doors: all,
		retry: retry{rounds: 5, pause: time.Second, longest: 2 * time.Minute, stall: 30 * time.Second},
	}, nil
}
