package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubexm/kubexm/pkg/util/human"
)

// offline compares a cluster that is made from a bundle with one whose parts are downloaded, and packages
// installed from the distribution's servers, meanwhile; and tells how large a bundle is, and how long it takes.
func (b *bench) offline(ctx context.Context) ([]figure, error) {
	if err := b.components(ctx); err != nil {
		return nil, err
	}
	if err := b.fresh(ctx, 2); err != nil {
		return nil, err
	}
	conf, err := b.configure(2, 1)
	if err != nil {
		return nil, err
	}
	cut, err := withoutNetwork(conf)
	if err != nil {
		return nil, err
	}
	there, here, bundle := filepath.Join(b.dir, "there"), filepath.Join(b.dir, "here"), filepath.Join(b.dir, "bundle.tar.zst")
	var online, local, exports, imports []made
	serve := func(ctx context.Context) error { return b.testbed.Serve(ctx, b.builder, nil) }
	err = served(ctx, serve, func() error {
		for range b.rounds {
			if err := os.RemoveAll(there); err != nil {
				return err
			}
			run, err := b.onNew(ctx, there, "create", "cluster", "-f", conf)
			if err != nil {
				return err
			}
			online = append(online, run)
		}
		pack := []string{"download", "-f", conf, "--os", "debian12"}
		if _, err := b.kubexm(ctx, there, pack...); err != nil {
			return err
		}
		for range b.rounds {
			run, err := b.kubexm(ctx, there, append(pack, "--export="+bundle)...)
			if err != nil {
				return err
			}
			exports = append(exports, run)
		}
		return nil
	})
	for range b.rounds {
		if err != nil {
			return nil, err
		}
		var in, run made
		if err = os.RemoveAll(here); err == nil {
			in, err = b.kubexm(ctx, here, "import", bundle)
		}
		if err == nil {
			run, err = b.onNew(ctx, here, "create", "cluster", "-f", cut)
		}
		imports, local = append(imports, in), append(local, run)
	}
	if err != nil {
		return nil, err
	}
	size, files, err := weigh(filepath.Join(there, "packages"))
	if err != nil {
		return nil, err
	}
	packed, err := os.Stat(bundle)
	if err != nil {
		return nil, err
	}
	wall := func(m made) time.Duration { return m.wall }
	mine, theirs := median(local, wall), median(online, wall)
	return []figure{{
		what: "create from a bundle, row 1", kubexm: seconds(mine.wall),
		against: "online, downloads from this machine and packages from Debian's servers included " + seconds(theirs.wall), ratio: mine.wall.Seconds() / theirs.wall.Seconds(),
		notes: []string{
			fmt.Sprintf("All rounds: online %s; from the bundle %s.", walls(online), walls(local)),
			fmt.Sprintf("The store, with packages of Debian 12, for amd64: %s in %d files. The bundle: %s; export %s, import %s.",
				human.Bytes(size), files, human.Bytes(packed.Size()), walls(exports), walls(imports)),
		},
	}}, nil
}

// served calls f while a mirror runs.
func served(ctx context.Context, serve func(context.Context) error, f func() error) error {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx) }()
	err := f()
	stop()
	<-ended // of its own accord
	return err
}

// onNew runs the program on new nodes.
func (b *bench) onNew(ctx context.Context, work string, args ...string) (made, error) {
	if err := b.fresh(ctx, 2); err != nil {
		return made{}, err
	}
	return b.kubexm(ctx, work, args...)
}

// withoutNetwork writes the configuration beside itself, with spec.source.offline.
func withoutNetwork(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var conf map[string]any
	if err := yaml.Unmarshal(text, &conf); err != nil {
		return "", err
	}
	conf["spec"].(map[string]any)["source"] = map[string]any{"offline": true}
	if text, err = yaml.Marshal(conf); err != nil {
		return "", err
	}
	return file + ".offline.yaml", os.WriteFile(file+".offline.yaml", text, 0o600)
}

// weigh adds up what is below a directory.
func weigh(dir string) (size int64, files int, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size, files = size+info.Size(), files+1
		}
		return err
	})
	return size, files, err
}
