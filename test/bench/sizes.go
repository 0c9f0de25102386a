package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/kubexm/kubexm/test/testbed"
	"github.com/kubexm/kubexm/test/testbed/build"
	"github.com/kubexm/kubexm/test/testbed/host"
	"github.com/kubexm/kubexm/test/testbed/mirror"
)

// sizes tells how large the store and a bundle of row 1 are, for one architecture and for
// two. It makes no machines: the mirror answers on this machine alone.
func (b *bench) sizes(ctx context.Context) ([]figure, error) {
	if err := b.components(ctx); err != nil {
		return nil, err
	}
	if err := b.foreign(ctx); err != nil {
		return nil, err
	}
	files, images, err := free()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := testbed.ConfigAnywhere(&text, b.builder, files, images); err != nil {
		return nil, err
	}
	conf := filepath.Join(b.dir, "anywhere.yaml")
	if err := os.WriteFile(conf, text.Bytes(), 0o600); err != nil {
		return nil, err
	}
	all := strings.Join(host.Archs(), ",")
	var bundles []int64
	var notes []string
	serve := func(ctx context.Context) error { return mirror.Serve(ctx, b.builder, files, images, nil) }
	err = served(ctx, serve, func() error {
		for _, what := range [][]string{
			{"--arch=" + runtime.GOARCH}, {"--arch=" + all}, {"--arch=" + runtime.GOARCH, "--os=debian12"}, {"--arch=" + all, "--os=debian12"},
		} {
			note, bundle, err := b.pack(ctx, append([]string{"download", "-f", conf}, what...))
			if err != nil {
				return err
			}
			notes, bundles = append(notes, "`"+strings.Join(what, " ")+"`: "+note), append(bundles, bundle)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return []figure{{
		what: "bundle of row 1 for two architectures", kubexm: mebibytes(bundles[1]),
		against: "for one " + mebibytes(bundles[0]), ratio: float64(bundles[1]) / float64(bundles[0]), notes: notes,
	}}, nil
}

// pack downloads into a new store, packs that, and takes it into another; it tells what they weigh, and the bundle in bytes.
func (b *bench) pack(ctx context.Context, download []string) (note string, bundle int64, err error) {
	there, here, file := filepath.Join(b.dir, "packed"), filepath.Join(b.dir, "unpacked"), filepath.Join(b.dir, "packed.tar.zst")
	for _, d := range []string{there, here} {
		if err := os.RemoveAll(d); err != nil {
			return "", 0, err
		}
	}
	if _, err := b.kubexm(ctx, there, append(download, "--export="+file)...); err != nil {
		return "", 0, err
	}
	if _, err := b.kubexm(ctx, here, "import", file); err != nil {
		return "", 0, err
	}
	size, files, err := weigh(filepath.Join(there, "packages"))
	if err != nil {
		return "", 0, err
	}
	packed, err := os.Stat(file)
	if err != nil {
		return "", 0, err
	}
	return fmt.Sprintf("store %s in %d files, bundle %s.", mebibytes(size), files, mebibytes(packed.Size())), packed.Size(), nil
}

// mebibytes are finer than human.Bytes: what one architecture adds is to be seen.
func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// foreign builds what a cluster is made of for the other architectures.
func (b *bench) foreign(ctx context.Context) error {
	table, err := b.builder.Table()
	if err != nil {
		return err
	}
	for _, other := range b.builder.Foreign() {
		if err := other.Build(ctx, build.Default(table)); err != nil {
			return err
		}
	}
	return b.images(ctx, table)
}

// free returns two addresses of this machine that nobody listens on.
func free() (one, two string, err error) {
	var at [2]string
	for i := range at {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", fmt.Errorf("looking for a port: %w", err)
		}
		defer l.Close() // at the end: the second must be another
		at[i] = l.Addr().String()
	}
	return at[0], at[1], nil
}
