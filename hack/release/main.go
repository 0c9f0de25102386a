// Command release makes what is published of kubexm, in dist: programs, archives, packages, a
// container image, the list of what is inside, where it comes from, and checksums. The same
// commit and Go give the same bytes, but for the signature by some kinds of keys. It is run
// by make release, in the root of the repository.
package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

const home = "https://github.com/kubexm/kubexm"

var (
	supported = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}
	// environment is what `go build` is given, whatever the one who makes the release has set: static, for the oldest processors.
	environment = []string{"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-mod=readonly", "GOWORK=off"}
)

type platform struct{ os, arch string }

// linux reports whether there are packages and an image for it.
func (p platform) linux() bool { return p.os == "linux" }

// program is where the program for it is, below dist.
func (p platform) program() string { return p.os + "_" + p.arch + "/kubexm" }

// release is one release, while it is made.
type release struct {
	version   string     // as of git describe
	commit    string     // in full
	date      time.Time  // of the commit: of all that is made
	flags     []string   // of go build
	key       string     // file of the private key to sign with; empty: not signed
	dir       string     // where to
	platforms []platform // for which
	stage     string     // what goes to archives and packages beside the program
	made      *debug.BuildInfo
}

func main() {
	r, err := parse(os.Args[1:])
	if err == nil {
		err = r.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	fmt.Println("made", r.version, "in", r.dir)
}

func parse(args []string) (*release, error) {
	r := &release{}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "as git describe says")
	flags.StringVar(&r.commit, "commit", "", "what is released")
	flags.StringVar(&r.key, "key", "", "file of an SSH key to sign with")
	flags.StringVar(&r.dir, "dir", "dist", "where to")
	wanted := flags.String("platforms", "", "only these, as in linux/amd64,linux/arm64")
	date := flags.String("date", "", "of the commit, RFC 3339")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	r.flags = flags.Args()
	if r.version == "" || r.commit == "" || len(r.flags) == 0 {
		return nil, errors.New("run it with make release, in a git repository")
	}
	for _, p := range supported {
		if *wanted == "" || slices.Contains(strings.Split(*wanted, ","), p.os+"/"+p.arch) {
			r.platforms = append(r.platforms, p)
		}
	}
	if r.platforms == nil {
		return nil, fmt.Errorf("there is no release for %s", *wanted)
	}
	if r.key != "" {
		changed, err := exec.Command("git", "status", "--porcelain").Output()
		if err != nil {
			return nil, fmt.Errorf("looking what is not committed: %w", err)
		}
		if r.dirty() || len(changed) > 0 {
			return nil, fmt.Errorf("files differ from the commit, and only what is committed is signed:\n%s", changed)
		}
	}
	var err error
	if r.date, err = time.Parse(time.RFC3339, *date); err != nil {
		return nil, fmt.Errorf("reading the date of the commit: %w", err)
	}
	r.date = r.date.UTC()
	return r, nil
}

// run makes all of it. What is described comes before what describes it.
func (r *release) run(ctx context.Context) (err error) {
	syscall.Umask(0o022) // the modes of files end in packages
	if err := r.clear(); err != nil {
		return err
	}
	if r.stage, err = os.MkdirTemp("", "kubexm-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.stage)
	for _, p := range r.platforms {
		if err := r.build(ctx, p); err != nil {
			return err
		}
	}
	if r.made, err = buildinfo.ReadFile(filepath.Join(r.dir, r.platforms[0].program())); err != nil {
		return fmt.Errorf("reading what the program was made of: %w", err)
	}
	for _, make := range []func() error{r.documents, r.archives, func() error { return r.packages(ctx) }, r.image, r.sbom, r.provenance, r.sums, r.sign} {
		if err := make(); err != nil {
			return err
		}
	}
	return nil
}

// clear removes an earlier release, but nothing else.
func (r *release) clear() error {
	files, err := os.ReadDir(r.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(files) > 0 && !slices.ContainsFunc(files, func(f os.DirEntry) bool { return f.Name() == sumsFile }) {
		return fmt.Errorf("%s is not empty, and no release: it would be removed", r.dir)
	}
	if err := os.RemoveAll(r.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, sumsFile), nil, 0o644) // it tells the directory of a release, also of one that failed
}

// build compiles the program for a platform.
func (r *release) build(ctx context.Context, p platform) error {
	args := slices.Concat([]string{"build"}, r.flags, []string{"-o", filepath.Join(r.dir, p.program()), "./cmd/kubexm"})
	return command(ctx, append(environment, "GOOS="+p.os, "GOARCH="+p.arch), "go", args...)
}

// dirty reports whether the files are not those of the commit.
func (r *release) dirty() bool { return strings.HasSuffix(r.version, "-dirty") }

// named is the path of something that is published, by what follows the name and the version.
func (r *release) named(rest string) string {
	return filepath.Join(r.dir, "kubexm_"+r.version+rest)
}

// command runs a program, with more in its environment.
func command(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}
