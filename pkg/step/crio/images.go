package crio

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/cluster"
	"github.com/kubexm/kubexm/pkg/pki"
	"github.com/kubexm/kubexm/pkg/runner"
	"github.com/kubexm/kubexm/pkg/step"
	"github.com/kubexm/kubexm/pkg/templates"
	"github.com/kubexm/kubexm/pkg/util/fault"
)

const (
	pinned = confDir + "20-kubexm-images.conf"
	// mirrors says, while images are brought, that kubexm has them. What comes last of several files on a registry counts.
	mirrors = registriesDir + "kubexm.store.conf"
)

// Images ensures that CRI-O has images of the store, under their names, and keeps them: they are pinned. Those it needed before are not any more, unless
// they are kept. CRI-O takes images from registries alone: where there is none, kubexm is the one, at a port of the host's loopback.
type Images struct {
	cluster.NodeImages
	sources func(registry string) []cluster.ImageSource // where else CRI-O asks
}

func (i Images) String() string { return "container images" }

// Owns is the file that lists those that are pinned, and what kubexm's certificate lies in while it serves them.
func (Images) Owns() ([]string, error) {
	dir := strings.TrimSuffix(certsDir, "/")
	return []string{"path " + pinned, "dir " + path.Dir(dir), "dir " + dir}, nil
}

// Precheck compares digests with CRI-O's list.
func (i Images) Precheck(ctx context.Context, r *runner.Runner) (*step.Change, error) {
	missing, loose, pins, err := i.look(ctx, r)
	if err != nil {
		return nil, err
	}
	names := slices.Clone(i.Names)
	if i.Keep {
		names = append(names, pins...)
	}
	slices.Sort(names)
	pin, err := step.Files{What: "pinned images", List: []step.File{{Path: pinned, Content: templates.Render("crio/pinned", slices.Compact(names)), Mode: 0o644}}}.Precheck(ctx, r)
	if err != nil || pin == nil && len(missing)+len(loose) == 0 {
		return nil, err
	}
	change := &step.Change{}
	if pin != nil {
		change.Diff = pin.Diff
	}
	for _, n := range missing {
		change.Diff += "+ " + n + " (missing)\n"
	}
	for _, n := range loose {
		change.Diff += "+ " + n + " (not pinned)\n"
	}
	change.Run = func(ctx context.Context) error {
		if pin != nil {
			if err := pin.Run(ctx); err != nil {
				return err
			}
		}
		if err := reload(ctx, r); err != nil {
			return err
		}
		if len(missing) > 0 {
			if err := i.bring(ctx, r, missing); err != nil {
				return err
			}
		}
		return soon(ctx, func() (bool, error) { // CRI-O reads its configuration in its own time
			_, loose, _, err := i.look(ctx, r)
			if err == nil && len(loose) > 0 {
				err = fault.Advise(fmt.Errorf("CRI-O has not pinned %s", strings.Join(loose, ", ")),
					"see journalctl -u crio; pinned_images in a file of "+confDir+" that comes after "+pinned+" takes the place of kubexm's: list those, too")
			}
			return err == nil, err
		})
	}
	return change, nil
}

// look returns those of the images that CRI-O does not have as the store has them, those that it has and has not pinned, and the names that it is to pin.
func (i Images) look(ctx context.Context, r *runner.Runner) (missing, loose, pins []string, err error) {
	out, err := r.Sh(ctx, "cat "+pinned+" 2>/dev/null; echo images; "+step.BinDir+"/crictl images -o json")
	var have struct {
		Images []struct {
			RepoTags, RepoDigests []string
			Pinned                bool
		}
	}
	conf, list, _ := strings.Cut("\n"+out, "\nimages\n")
	if err == nil {
		err = json.Unmarshal([]byte(list), &have)
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("listing CRI-O's images: %w", err)
	}
	want, err := i.Digests(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, m := range regexp.MustCompile(`(?m)^ *"(.*)",$`).FindAllStringSubmatch(conf, -1) {
		pins = append(pins, m[1])
	}
	missing = slices.Clone(i.Names)
	for _, image := range have.Images {
		for _, tag := range image.RepoTags {
			is := slices.ContainsFunc(image.RepoDigests, func(d string) bool { return slices.Contains(want[tag], d[strings.Index(d, "@")+1:]) })
			if is {
				missing = slices.DeleteFunc(missing, func(n string) bool { return n == tag })
			}
			if is && !image.Pinned {
				loose = append(loose, tag)
			}
		}
	}
	return missing, loose, pins, nil
}

// reload has CRI-O read its configuration, which it does after this has returned.
func reload(ctx context.Context, r *runner.Runner) error {
	if _, err := r.Sh(ctx, "systemctl reload crio"); err != nil {
		return fmt.Errorf("reloading CRI-O: %w", err)
	}
	return nil
}

// patience is for what CRI-O does in its own time.
const patience = 10 * time.Second

// soon tries something until it is done: as long as patience lasts, and three times at least.
func soon(ctx context.Context, try func() (done bool, err error)) error {
	const pause, least = 500 * time.Millisecond, 3
	end := time.Now().Add(patience)
	for tries := 1; ; tries++ {
		done, err := try()
		if done || tries >= least && time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// bring has CRI-O pull images, from the private registry or from kubexm.
func (i Images) bring(ctx context.Context, r *runner.Runner, names []string) error {
	if !i.Pull {
		return i.load(ctx, r, names)
	}
	return i.pull(ctx, r, names, func(name string, err error) (bool, error) {
		if err != nil {
			err = i.NotPulled(name, err)
		}
		return err == nil, err
	})
}

// load lets CRI-O pull images from kubexm: only while it does, registries have a mirror that it reaches on its host.
func (i Images) load(ctx context.Context, r *runner.Runner, names []string) error {
	served, err := i.Store.Serve(i.Arch, step.Progress(ctx), names...)
	if err != nil {
		return err
	}
	l, err := r.Listen(ctx)
	if err != nil {
		return fault.AdviseMore(err, "or let kubexm run a private registry (role registry), from which CRI-O gets images without that")
	}
	defer l.Close()
	cert, ended, err := serve(ctx, l, served)
	if err != nil {
		return err
	}
	address := l.Addr().String()
	var all []registry
	for _, n := range names {
		name, _, _ := strings.Cut(n, "/")
		if !slices.ContainsFunc(all, func(r registry) bool { return r.Prefix == name }) {
			all = append(all, registryOf(name, append([]place{{served.Mirror(address, name), false}}, places(i.sources(name))...)))
		}
	}
	err = mirrored(ctx, r, address, cert, all, func() error {
		return i.pull(ctx, r, names, func(name string, err error) (bool, error) {
			switch asked := served.Asked(name); {
			case err != nil:
				return asked, fmt.Errorf("pulling %s from kubexm: %w", name, err)
			case !asked:
				return false, fmt.Errorf("pulling %s: CRI-O has not asked kubexm for it", name)
			}
			return true, nil
		})
	})
	select {
	case <-ended: // with the connection
		return fault.Transient(err)
	default:
		l.Close()
		<-ended
		return err
	}
}

// serve answers who connects to l, until that is closed, with a certificate of its own.
func serve(ctx context.Context, l net.Listener, handler http.Handler) (cert []byte, ended chan struct{}, err error) {
	own, err := pki.SelfSigned(net.IPv4(127, 0, 0, 1))
	if err != nil {
		return nil, nil, err
	}
	pair, err := tls.X509KeyPair(own.Cert, []byte(own.Key.Reveal()))
	if err != nil {
		return nil, nil, err
	}
	server := &http.Server{
		Handler: handler, BaseContext: func(net.Listener) context.Context { return ctx }, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, ErrorLog: log.New(io.Discard, "", 0),
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.ServeTLS(l, "", "") // until l is closed
		_ = server.Close()             // what is connected ends with it
	}()
	return own.Cert, ended, nil
}

// mirrored does something while CRI-O has registries with a mirror of that address and certificate.
func mirrored(ctx context.Context, r *runner.Runner, address string, cert []byte, all []registry, do func() error) (err error) {
	dir := certsDir + address
	defer func() { // who takes the port has no such certificate; and a killed run's is removed by the next
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_, undone := r.Sh(ctx, fmt.Sprintf("rm -f %[1]s %[2]s/kubexm.crt; rmdir %[2]s 2>/dev/null; systemctl reload crio", mirrors, dir))
		err = errors.Join(err, undone)
	}()
	_, err = r.Change(ctx, fmt.Sprintf(`made %[1]s
mkdir -p %[2]s
cat >%[2]s/kubexm.crt <<'END'
%[3]sEND
: >%[4]s
chmod 600 %[4]s
cat >%[4]s <<'END'
%[5]sEND
systemctl reload crio`, strings.TrimSuffix(certsDir, "/"), dir, cert, mirrors, templates.Render("crio/registries", all)))
	if err != nil {
		return fmt.Errorf("naming kubexm a mirror: %w", err)
	}
	return do()
}

// pull lets CRI-O get images, until judge is content with how that ended: it may not have read yet where they are.
func (i Images) pull(ctx context.Context, r *runner.Runner, names []string, judge func(name string, err error) (bool, error)) error {
	return step.PullImages(ctx, names, func(ctx context.Context, name string) error {
		return soon(ctx, func() (bool, error) {
			_, err := r.Run(ctx, step.BinDir+"/crictl", "pull", name)
			return judge(name, err)
		})
	})
}

// Load brings the images that a node needs into CRI-O.
func Load(c *cluster.Cluster, host string) step.Step {
	others := func(registry string) []cluster.ImageSource { return c.ImageSources(registry, false) } // there is no private one where this is asked
	return step.Transfer(Images{c.NodeImages(host), others})
}
