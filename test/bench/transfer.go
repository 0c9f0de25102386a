package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/test/testbed"
)

const (
	receivers = 4
	payload   = 300 << 20
	target    = "/usr/local/bin/payload"
)

// way is one way to bring a file to a node. All open their own connections, with
// the same cipher.
type way struct {
	name string
	send func(ctx context.Context, n testbed.Node) error
	took []made
}

// transfer compares kubexm's upload, checksum verified on the node and synced to
// disk, with a raw stream that is checked and synced too, and with a raw stream and scp that are not.
func (b *bench) transfer(ctx context.Context) ([]figure, error) {
	if err := b.fresh(ctx, receivers); err != nil {
		return nil, err
	}
	nodes, err := b.testbed.Nodes()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(b.dir, "payload")
	sum, err := writeRandom(file)
	if err != nil {
		return nil, err
	}
	stream := func(script string) func(context.Context, testbed.Node) error {
		return func(ctx context.Context, n testbed.Node) error {
			f, err := os.Open(file)
			if err != nil {
				return err
			}
			defer f.Close()
			cmd := b.openSSH(ctx, "ssh", n, "root@"+n.Address, script)
			cmd.Stdin = f
			return cmd.Run()
		}
	}
	ways := []*way{
		{name: "raw stream", send: stream("cat >" + target)},
		{name: "raw stream with checksum and sync", send: stream("cat >" + target + " && openssl dgst -sha256 " + target + " && sync " + target)},
		{name: "scp", send: func(ctx context.Context, n testbed.Node) error {
			return b.openSSH(ctx, "scp", n, "-q", file, "root@"+n.Address+":"+target).Run()
		}},
		{name: "kubexm", send: func(ctx context.Context, n testbed.Node) error { return b.upload(ctx, n, file, sum) }},
	}
	for round := range b.rounds + 1 { // the first one is not counted
		for _, w := range ways {
			if err := b.clear(ctx, nodes); err != nil {
				return nil, err
			}
			begin := time.Now()
			group, gctx := errgroup.WithContext(ctx)
			for _, n := range nodes {
				group.Go(func() error { return w.send(gctx, n) })
			}
			if err := group.Wait(); err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			took := made{used: used{wall: time.Since(begin)}}
			fmt.Fprintf(b.out, "transfer, round %d, %s: %s\n", round, w.name, seconds(took.wall))
			if round > 0 {
				w.took = append(w.took, took)
			}
		}
	}
	return []figure{transferFigure(ways)}, nil
}

func transferFigure(ways []*way) figure {
	middle := func(w *way) time.Duration { return median(w.took, func(m made) time.Duration { return m.wall }).wall }
	raw, checked, scp, mine := middle(ways[0]), middle(ways[1]), middle(ways[2]), middle(ways[3])
	f := figure{
		what: fmt.Sprintf("%d MB to %d nodes", payload>>20, receivers), kubexm: seconds(mine),
		against: fmt.Sprintf("raw stream %s, with checksum and sync %s, scp %s", seconds(raw), seconds(checked), seconds(scp)), ratio: mine.Seconds() / raw.Seconds(), goal: "<= 1.2 x raw stream",
		notes: []string{fmt.Sprintf("kubexm verifies the checksum on the node and syncs the file to disk, as the second way does: %.2f of it. "+
			"What both cost here, on processors that all nodes share, is most of the difference to the raw stream.", mine.Seconds()/checked.Seconds())},
	}
	f.missed = f.ratio > 1.2
	for _, w := range ways {
		rate := float64(receivers*payload>>20) / middle(w).Seconds()
		f.notes = append(f.notes, fmt.Sprintf("%s: %s; %.0f MB/s over all nodes.", w.name, walls(w.took), rate))
	}
	return f
}

// clear removes the file from all nodes and lets the disk come to rest.
func (b *bench) clear(ctx context.Context, nodes []testbed.Node) error {
	for _, n := range nodes {
		if _, err := b.testbed.SSH(ctx, n, "rm -f "+target); err != nil {
			return err
		}
	}
	syscall.Sync()
	return nil
}

func (b *bench) openSSH(ctx context.Context, program string, n testbed.Node, args ...string) *exec.Cmd {
	options := b.testbed.SSHCommand(n, "root") // ssh OPTION... root@ADDRESS
	options = append(options[1:len(options)-1], "-c", "aes128-gcm@openssh.com")
	return exec.CommandContext(ctx, program, append(options, args...)...)
}

func (b *bench) upload(ctx context.Context, n testbed.Node, file, sum string) error {
	r, err := b.connect(ctx, n)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.Upload(ctx, runner.Upload{Path: target, Mode: 0o755, Size: payload, SHA256: sum, Data: f})
}

// writeRandom writes a file that cannot be compressed, and returns its checksum.
func writeRandom(file string) (sum string, err error) {
	f, err := os.Create(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, h), rand.Reader, payload); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), f.Close()
}
