// Package build makes the programs of a cluster from their Go modules, with
// the ordinary go command, and lays them out the way their projects publish
// them, so that a mirror can serve them.
package build

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/test/testbed/host"
)

// A Builder makes components for one architecture and keeps them in a cache.
type Builder struct {
	Arch    string // one of host.Archs
	Cache   Cache
	Sets    string    // directory of the module sets
	Out     io.Writer // progress, one line per component
	GoCache string    // the compiler's; when empty, one in Cache that is dropped when all is built

	goVersion string
}

// NewBuilder finds the module sets beside this package, asking the go command
// from inside the module.
func NewBuilder(ctx context.Context, cache Cache, out io.Writer) (*Builder, error) {
	dir, err := host.Run(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/kubexm/kubexm/test/testbed/build")
	if err != nil {
		return nil, fmt.Errorf("finding the testbed's sources (run this inside the repository): %w", err)
	}
	version, err := host.Run(ctx, "go", "env", "GOVERSION")
	if err != nil {
		return nil, fmt.Errorf("asking for Go's version: %w", err)
	}
	return &Builder{
		Arch: runtime.GOARCH, Cache: cache, Sets: filepath.Join(filepath.Dir(strings.TrimSpace(dir)), "components"), Out: out,
		goVersion: strings.TrimSpace(version),
	}, nil
}

// Table returns what can be built.
func (b *Builder) Table() ([]Component, error) { return Table(b.Sets) }

// Dir is where a component's results are, or will be: programs in bin, and in
// dist a tree of upstream's places (host/path...) with what lies there. It
// changes with everything that goes into the build.
func (b *Builder) Dir(c Component) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, layoutVersion, b.goVersion, b.Arch, c.flags+c.gcflags, c.tags, c.cgo, c.packages())
	set := filepath.Join(b.Sets, c.set)
	err := filepath.WalkDir(set, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(p)
		fmt.Fprintf(h, "%s %d\n%s", strings.TrimPrefix(p, set), len(text), text)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading the modules of %s: %w", c.Name, err)
	}
	return b.Cache.Path("components", fmt.Sprintf("%s-%s-%s-%.4x", c.Name, c.Version, b.goVersion, h.Sum(nil))), nil
}

// Built returns a component's results; ok is false when it has not been built.
func (b *Builder) Built(c Component) (dir string, ok bool) {
	dir, err := b.Dir(c)
	if err != nil {
		return "", false
	}
	_, err = os.Stat(dir)
	return dir, err == nil
}

// Build makes what is not there yet. It may be cut off at any moment: a
// component is there as a whole or not at all. What is for another
// architecture is made after the same for this machine's own.
func (b *Builder) Build(ctx context.Context, want []Component) error {
	if b.foreign() {
		if err := b.On(runtime.GOARCH).Build(ctx, want); err != nil {
			return err
		}
	}
	var todo []Component
	for _, c := range want {
		if _, ok := b.Built(c); !ok {
			todo = append(todo, c)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	unlock, err := b.Cache.Lock(ctx, "build")
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.ready(ctx, todo); err != nil {
		return err
	}
	halves, _ := filepath.Glob(b.Cache.Path("components", "tmp-*"))
	for _, h := range halves { // of builds that were killed
		if err := os.RemoveAll(h); err != nil {
			return fmt.Errorf("building: %w", err)
		}
	}
	for i, c := range todo {
		start := time.Now()
		what := c.Name + " " + c.Version
		if b.foreign() {
			what += " for " + b.Arch
		}
		fmt.Fprintf(b.Out, "build %d/%d %s\n", i+1, len(todo), what)
		if err := b.build(ctx, c); err != nil {
			return fmt.Errorf("building %s: %w", what, err)
		}
		fmt.Fprintf(b.Out, "build %d/%d %s: %d s\n", i+1, len(todo), what, int(time.Since(start).Seconds()))
	}
	if b.GoCache != "" {
		return nil
	}
	return os.RemoveAll(b.goCache())
}

// ready makes sure that the machine has what building takes.
func (b *Builder) ready(ctx context.Context, todo []Component) error {
	var space uint64
	for _, c := range todo {
		space += c.space()
		if !c.cgo {
			continue
		}
		tools := host.ForBuilds
		if b.foreign() {
			tools = host.ForCross(b.Arch)
		}
		if err := host.Require(ctx, b.Out, tools...); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(b.Cache.Path("components"), 0o755); err != nil {
		return fmt.Errorf("building: %w", err)
	}
	return host.Free(b.Cache.Dir, space)
}

func (b *Builder) goCache() string { return cmp.Or(b.GoCache, b.Cache.Path("gocache")) }

// build makes one component in a directory beside its place, then renames it.
func (b *Builder) build(ctx context.Context, c Component) error {
	dir, err := b.Dir(c)
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); err == nil {
		return nil // another process was faster
	}
	tmp, err := os.MkdirTemp(b.Cache.Path("components"), "tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := b.compile(ctx, c, filepath.Join(tmp, "bin")); err != nil {
		return err
	}
	if c.publish != nil {
		own, err := b.On(runtime.GOARCH).Dir(c)
		if err != nil {
			return err
		}
		p := &publication{
			arch: b.Arch, bin: filepath.Join(tmp, "bin"), dist: filepath.Join(tmp, "dist"), set: filepath.Join(b.Sets, c.set),
			own: filepath.Join(own, "dist"),
		}
		if err := c.publish(c, p); err != nil {
			return err
		}
	}
	return os.Rename(tmp, dir)
}

func (b *Builder) compile(ctx context.Context, c Component, bin string) error {
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	v := strings.SplitN(strings.TrimPrefix(c.Version, "v"), ".", 3)
	minor := append(v, "0")[1]
	flags := strings.NewReplacer("{V}", c.Version, "{v}", c.Version[1:], "{MAJ}", v[0], "{MIN}", minor).Replace("-s -w " + c.flags)
	cgo := "CGO_ENABLED=0"
	if c.cgo {
		cgo = "CGO_ENABLED=1"
		flags += " -linkmode external -extldflags -static"
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-o", bin + "/", "-ldflags", flags, "-gcflags", c.gcflags, "-tags", strings.ReplaceAll(c.tags, " ", ",")}
	cmd := exec.CommandContext(ctx, "go", append(args, c.packages()...)...)
	cmd.Dir = filepath.Join(b.Sets, c.set)
	cmd.Env = append(os.Environ(), cgo, "GOARCH="+b.Arch, "GOFLAGS=-mod=readonly", "GOWORK=off", "GOCACHE="+b.goCache())
	if c.cgo && b.foreign() {
		compiler, err := b.cross(ctx)
		if err != nil {
			return err
		}
		cmd.Env = append(cmd.Env, compiler...)
	}
	if _, err := host.Output(cmd); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Programs)) {
		if made := commandName(c.Programs[name]); made != name {
			if err := os.Rename(filepath.Join(bin, made), filepath.Join(bin, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// commandName is what the go command calls the program of a package: the last
// element of its path that is not a major version.
func commandName(pkg string) string {
	name := path.Base(pkg)
	if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
		name = path.Base(path.Dir(pkg))
	}
	return name
}
