package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// restore compares a cluster that is made again on other machines, from a backup, with a script that does so by hand. Both have the programs and images on this machine.
func (b *bench) restore(ctx context.Context) ([]figure, error) {
	const nodes, row, objects, goal = 2, 1, 1000, 1.25
	if err := b.components(ctx); err != nil {
		return nil, err
	}
	if err := b.fresh(ctx, nodes); err != nil {
		return nil, err
	}
	conf, err := b.configure(nodes, row)
	if err != nil {
		return nil, err
	}
	base, err := b.prepare(ctx, conf, row)
	if err != nil {
		return nil, err
	}
	backup, err := b.backedUp(ctx, conf, base, objects)
	if err != nil {
		return nil, err
	}
	content := filepath.Join(b.dir, "backup.tar")
	if err := unpack(backup, content); err != nil {
		return nil, err
	}
	out := filepath.Join(b.dir, "admin.conf")
	var ours, theirs []made
	for round := range b.rounds {
		var hand, run made
		sides := []func() error{
			func() (err error) {
				if hand.used, err = base.run(ctx, "baseline", "ROW=restore", "BACKUP="+content); err != nil {
					return err
				}
				return base.whole(ctx, &hand, out, objects)
			},
			func() (err error) {
				if run, err = b.kubexm(ctx, b.workdir(), "restore", backup, "-f", conf, "--yes"); err != nil {
					return err
				}
				return base.whole(ctx, &run, filepath.Join(b.workdir(), cluster, "admin.conf"), objects)
			},
		}
		if round%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			if err := b.fresh(ctx, nodes); err != nil {
				return nil, err
			}
			if err := side(); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(b.out, "restore, row %d, round %d: script %s, kubexm %s\n", row, round+1, seconds(hand.wall), seconds(run.wall))
		ours, theirs = append(ours, run), append(theirs, hand)
	}
	f, _, _ := compared(fmt.Sprintf("a cluster of %d nodes again, on other machines, row %d", nodes, row), "hand-written script", ours, theirs, goal)
	f.notes = append(f.notes, fmt.Sprintf("Each time all %d objects were there.", objects))
	return []figure{f}, nil
}

// backedUp makes a cluster with some objects, and a backup of it that is not encrypted.
func (b *bench) backedUp(ctx context.Context, conf string, base *baseline, objects int) (file string, err error) {
	made, err := b.kubexm(ctx, b.workdir(), "create", "cluster", "-f", conf)
	if err != nil {
		return "", err
	}
	var list strings.Builder
	for i := range objects {
		fmt.Fprintf(&list, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s%d}\n", object, i)
	}
	create := base.kubectl(ctx, made.Kubeconfig, "create", "--validate=false", "-f", "-")
	create.Stdin = strings.NewReader(list.String())
	if _, err := measure(create); err != nil {
		return "", err
	}
	dir := filepath.Join(b.dir, "backups")
	if _, err := measure(exec.CommandContext(ctx, b.program, "backup", "create", "-f", conf, "--workdir", b.workdir(), "--unencrypted", "--to", dir)); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err == nil && len(files) != 1 {
		err = fmt.Errorf("backups are %q", files)
	}
	if err != nil {
		return "", err
	}
	return files[0], nil
}

// object begins the names of objects that are backed up.
const object = "backed-up-"

// whole waits for all pods of a cluster, which counts, and wants it to have all objects.
func (b *baseline) whole(ctx context.Context, m *made, kubeconfig string, objects int) error {
	pods, err := measure(b.kubectl(ctx, kubeconfig, "wait", "--for=condition=Ready", "--timeout=120s", "--all-namespaces", "--all", "pods"))
	if err != nil {
		return err
	}
	m.wall += pods.wall
	out, err := b.kubectl(ctx, kubeconfig, "get", "configmaps", "-o", "name").Output()
	if n := strings.Count(string(out), object); err == nil && n != objects {
		err = fmt.Errorf("%d of %d objects are there", n, objects)
	}
	return err
}

// unpack writes what is compressed in a file to another one.
func unpack(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	z, err := zstd.NewReader(in)
	if err != nil {
		return err
	}
	defer z.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, z)
	return errors.Join(err, out.Close())
}
