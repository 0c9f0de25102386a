package resource

import (
	"path/filepath"
	"sync"
	"time"

	"github.com/kubexm/kubexm/pkg/resource/source"
	"github.com/kubexm/kubexm/pkg/signature"
)

// Store is the folder of everything fetched. It is safe for concurrent use. A
// step may hold one: it marshals to {}, so plans do not depend on where it is.
type Store struct {
	dir     string
	source  *source.Client
	retry   source.Retry
	read    sync.Map // of packages that were read, by checksum
	indexes sync.Map // of Helm repositories, by URL
	silent  sync.Map // hosts of publishers that did not answer

	authority signature.Authority // of who signs what is published
}

// Open returns the store in dir, which is made when first needed.
func Open(dir string, from source.Config) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	client, err := source.New(from)
	if err != nil {
		return nil, err
	}
	return &Store{
		dir: dir, source: client, authority: signature.Sigstore(),
		retry: source.Retry{Rounds: 5, Pause: time.Second, Longest: 2 * time.Minute, Stall: 30 * time.Second},
	}, nil
}
