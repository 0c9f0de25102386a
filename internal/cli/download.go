package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubexm/kubexm/internal/app"
	"github.com/kubexm/kubexm/internal/cli/style"
	"github.com/kubexm/kubexm/pkg/config"
	"github.com/kubexm/kubexm/pkg/resource"
	"github.com/kubexm/kubexm/pkg/resource/distro"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/human"
)

// downloading is what kubexm download was told.
type downloading struct {
	app.Selection
	file          string // of the bundle
	sign, sbom    string // files of the key, and for the list
	limit         byteSize
	verify, prune bool
	format        *choice
}

const downloadExample = `  kubexm download --name prod --dry-run
  kubexm download --name prod --export
  kubexm download --k8s v1.37.1,v1.36.4 --arch amd64,arm64 --export=k8s.tar.zst --volume-size 2G
  kubexm download --name prod --os debian12,rocky9 --arch amd64 --export
  kubexm download --name prod --export --sign-key ~/.ssh/id_ed25519 --sbom prod.cdx.json
  kubexm download --verify
  kubexm download --prune --dry-run`

func (p *program) downloadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "download [--export[=FILE]]", Short: "Download what clusters need, and pack it for machines without internet", GroupID: groupStore,
		Long: `Download the programs and images that a cluster needs into the store, packages in the
work directory. No machine of the cluster is contacted. What is in the store already is
not downloaded again, and interrupted downloads continue where they stopped.

What is needed follows from the configuration (--name or -f; its spec.source.offline
does not count here), or is everything that any cluster of some Kubernetes versions may
need (--k8s). First comes a list of what will be downloaded, from where, and how large
it is if servers say so; with --dry-run that is all.

--export also packs it into one file, or into volumes, for 'kubexm import' on a machine
without internet. The same store gives the same bytes. --sign-key signs it with an SSH
key, so that 'kubexm import --verify-key' can check who made it: a private key, or a
public one (.pub) whose private key the SSH agent holds.

--sbom writes a list of everything that was downloaded, with versions, checksums and
origins (CycloneDX, JSON); a bundle contains it, too.

--verify reads every file of the store and compares it with the lock file; the exit code
is 1 if something is wrong. It also rewrites the indexes of images and packages that the
store itself publishes. --prune removes what no cluster needs: none of those in conf and
in the work directory, or not the one that is named.

--os adds packages for operating systems, with all their dependencies: those that the
cluster's machines need. This machine needs the tool that resolves them: apt and the
distribution's keyring, or dnf and dnf-plugins-core. It reads the package index through
spec.source.access if that has an entry, else with its own settings. Packages in the lock
file stay as they are; --refresh looks for newer ones. Machines install them from the
store if spec.source.offline is true, else from their own repositories.
Operating systems: ` + commaLines(distro.Names(), 84) + ".",
		Example: downloadExample,
	}
	var d downloading
	p.downloadFlags(cmd, &d)
	cmd.Args = d.arguments
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error { return p.checkDownload(cmd, args, &d) }
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case d.verify:
			return p.verify(cmd.Context(), d.format.value)
		case d.prune:
			return p.prune(cmd.Context(), d.format.value, d.Selection)
		}
		return p.download(cmd, args, &d)
	}
	return cmd
}

// commaLines joins words with commas, in lines of at most width characters; "Operating systems: " is before them.
func commaLines(words []string, width int) string {
	text, used := words[0], len("Operating systems: ")+len(words[0])
	for _, w := range words[1:] {
		if used += len(w) + len(", "); used > width {
			text, used = text+",\n"+w, len(w)
		} else {
			text += ", " + w
		}
	}
	return text
}

func (p *program) downloadFlags(cmd *cobra.Command, d *downloading) {
	f := cmd.Flags()
	f.StringSliceVar(&d.Archs, "arch", nil, "`architectures`, amd64 and arm64, of machines that have none configured (default amd64)")
	f.StringSliceVar(&d.Kubernetes, "k8s", nil, "`versions` of Kubernetes, instead of the one of a configuration")
	f.StringSliceVar(&d.Systems, "os", nil, "also download packages for operating `systems`, like debian12")
	f.BoolVar(&d.Refresh, "refresh", false, "with --os: look for packages newer than those in the lock file")
	f.StringVar(&d.file, "export", "", "also pack it into a `file`")
	f.Lookup("export").NoOptDefVal = app.BundleDefault
	f.Var(&d.limit, "volume-size", "split the file into volumes FILE.001, FILE.002... of this size, like 2G")
	f.StringVar(&d.sign, "sign-key", "", "sign what --export writes with the SSH key in a `file`")
	f.StringVar(&d.sbom, "sbom", "", "also write a list of what was downloaded to a `file`")
	f.BoolVar(&p.request.DryRun, "dry-run", false, "only list what would be downloaded, or removed")
	f.BoolVar(&d.verify, "verify", false, "check every file of the store against the lock file")
	f.BoolVar(&d.prune, "prune", false, "remove from the store what no cluster needs")
	f.IntVar(&p.request.Parallel, "parallel", 0, "downloads at a time (default 4)")
	complete(cmd, "arch", app.Archs)
	complete(cmd, "os", distro.Names)
	complete(cmd, "k8s", func() []string { return []string{config.DefaultKubernetes()} })
	_ = cmd.MarkFlagFilename("export", "zst")
	_ = cmd.MarkFlagFilename("sign-key")
	_ = cmd.MarkFlagFilename("sbom", "json")
	d.format = output(cmd, "text", "json")
}

// arguments takes "download cluster", as other commands have it, and the file of
// "--export FILE".
func (d *downloading) arguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && args[0] == "cluster" {
		args = args[1:]
	}
	if len(args) > 0 && d.file == app.BundleDefault {
		d.file, args = args[0], args[1:]
	}
	return arguments(0)(cmd, args)
}

// checkDownload checks what flags cannot check.
func (p *program) checkDownload(cmd *cobra.Command, args []string, d *downloading) error {
	named := p.request.Name != "" || p.request.File != ""
	var err error
	switch {
	case d.limit > 0 && d.file == "":
		err = errors.New("--volume-size needs --export")
	case d.sign != "" && d.file == "":
		err = errors.New("--sign-key needs --export")
	case d.verify && (d.prune || d.file != "" || d.sbom != "" || p.request.DryRun || len(d.Kubernetes)+len(d.Systems) > 0):
		err = errors.New("--verify cannot be combined with other flags: it checks the whole store")
	case d.prune && (d.file != "" || d.sbom != "" || len(d.Kubernetes) > 0):
		err = errors.New("--prune cannot be combined with --export, --sbom or --k8s: it keeps what clusters need")
	case named && len(d.Kubernetes) > 0:
		err = errors.New("--k8s replaces a configuration, which has its own version: leave out one of the two")
	case d.Refresh && len(d.Systems) == 0:
		err = errors.New("--refresh needs --os")
	case p.request.Parallel < 0:
		err = fmt.Errorf("--parallel must be at least 1, not %d", p.request.Parallel)
	case !named && (d.verify || d.prune || len(d.Kubernetes) > 0):
		return nil
	default:
		return p.chosen(cmd, args)
	}
	return usage(fault.Advise(err, "see: "+cmd.CommandPath()+" --help"))
}

func (p *program) download(cmd *cobra.Command, args []string, d *downloading) error {
	list, err := p.app.NewDownload(cmd.Context(), p.request, p.observer(), d.Selection)
	if err != nil {
		return err
	}
	return p.fetch(cmd, list, d.format.value, app.Bundle{File: d.file, Limit: int64(d.limit), Program: buildOf().Version, SignKey: d.sign, SBOM: d.sbom})
}

// fetch shows a list, and downloads what it says.
func (p *program) fetch(cmd *cobra.Command, list *app.Download, format string, to app.Bundle) (err error) {
	if format == "json" {
		err = p.jsonLine("items", list)
	} else if !p.quiet || p.request.DryRun {
		_, err = fmt.Fprint(p.out, itemsText(list, style.New(p.colors(p.out)), width(p.out)))
	}
	if err != nil {
		return err
	}
	if p.request.DryRun {
		if format == "json" {
			p.answered = true
			return p.result(&app.Result{Cluster: list.Cluster}, nil)
		}
		return nil
	}
	return p.operate(cmd, format, list.Run(to))
}

// itemsText lists what is needed, and adds up what is there and what is not.
func itemsText(d *app.Download, st style.Style, width int) string {
	rows := [][]string{head(st.Dim, "NEEDED", "ARCH", "SIZE", "FROM")}
	var there, missing []resource.Stock
	for _, i := range d.Items {
		what, from, bytes := cmp.Or(i.Image, i.Component+" "+i.Version), i.From, "unknown"
		if i.System != "" {
			what = "packages of " + i.System
		}
		if i.Size >= 0 {
			bytes = human.Bytes(i.Size)
		}
		if from == i.Image {
			from, _, _ = strings.Cut(from, "/") // the rest stands in the first column
		}
		if i.There {
			from = st.Good.String("in the store")
			if i.Signed {
				from += ", signed"
			}
			there = append(there, i)
		} else {
			missing = append(missing, i)
		}
		rows = append(rows, []string{what, i.Arch, bytes, from})
	}
	text := fitting(rows, width)
	what := "everything is in the store: " + amount(there)
	if len(missing) > 0 {
		what = fmt.Sprintf("%s to fetch, %s in the store", amount(missing), amount(there))
	}
	return fmt.Sprintf("%s\n%s: %s\n", text, st.Bold.String(d.Cluster+" "+strings.Join(d.Versions, ", ")), what)
}

// amount counts items and their bytes. Images may share layers, which are fetched once.
func amount(items []resource.Stock) string {
	var known int64
	unknown := 0
	for _, i := range items {
		known += max(i.Size, 0)
		if i.Size < 0 {
			unknown++
		}
	}
	text := human.Count(len(items), "item")
	if len(items) > unknown {
		text += ", at most " + human.Bytes(known)
	}
	if unknown > 0 {
		text += fmt.Sprintf(" (%d of unknown size)", unknown)
	}
	return text
}

func (p *program) verify(ctx context.Context, format string) error {
	is, err := p.app.Verify(ctx)
	if err != nil {
		return err
	}
	if format == "json" {
		err = p.print("json", is)
	} else if !p.quiet || len(is.Flaws) > 0 {
		st := style.New(p.colors(p.out))
		for _, f := range is.Flaws {
			fmt.Fprintf(p.out, "%s %s: %s\n", st.Bad.String("✗"), f.Path, f.What)
		}
		if len(is.Flaws) == 0 {
			fmt.Fprintf(p.out, "%s the store matches its lock file: %s, %s\n", st.Good.String("✓"), human.Count(is.Files, "file"), human.Bytes(is.Bytes))
		}
		if n := is.Signed + is.Unsigned; n > 0 {
			fmt.Fprintf(p.out, "  programs of Kubernetes with the signature of their release: %d of %d\n", is.Signed, n)
		}
	}
	if err == nil && len(is.Flaws) > 0 {
		err = fmt.Errorf("the store does not match its lock file: %s in %s", human.Count(len(is.Flaws), "flaw"), human.Count(is.Files, "file"))
		err = fault.Advise(err, "what is wrong is not used: kubexm download, or import, replaces what is wrong or missing")
	}
	return err
}

func (p *program) prune(ctx context.Context, format string, sel app.Selection) error {
	gone, err := p.app.Prune(ctx, p.request, p.observer(), sel)
	if err != nil {
		return err
	}
	var total int64
	for _, g := range gone {
		total += g.Size
	}
	if format == "json" {
		return p.print("json", struct {
			DryRun  bool              `json:"dryRun"`
			Removed []resource.Pruned `json:"removed"`
			Bytes   int64             `json:"bytes"`
		}{p.request.DryRun, gone, total})
	}
	did := "removed"
	if p.request.DryRun {
		did = "would be removed"
	}
	if p.quiet && !p.request.DryRun {
		return nil
	}
	var rows [][]string
	for _, g := range gone {
		rows = append(rows, []string{"- " + g.Name, human.Bytes(g.Size)})
	}
	_, err = fmt.Fprintf(p.out, "%s%s %s, %s\n", table(rows), human.Count(len(gone), "thing"), did, human.Bytes(total))
	return err
}

func (p *program) importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "import FILE...", Short: "Import a bundle made by 'download --export' into the store", GroupID: groupStore,
		Long: `Import a bundle made by 'kubexm download --export' into the store of this work directory.
FILE is the bundle, or the first of its volumes: the others are found beside it.

Every part is verified before it is used. What is in the store already is left alone, so
an import that was interrupted continues where it stopped. A bundle that was changed, is
incomplete, or contradicts the lock file of this store is refused. --verify-key accepts
only a bundle signed with a key in that file: a public key, or lines in the format of
authorized_keys or allowed_signers. Without it, the signer is shown, but not checked.

Then create the cluster with spec.source.offline: true: nothing is downloaded any more.`,
		Example: "  kubexm import prod-v1.37.1.tar.zst\n  kubexm import k8s.tar.zst.001\n  kubexm import --verify-key builder.pub prod-v1.37.1.tar.zst",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(fault.Advise(errors.New("which file?"), "name the one that 'kubexm download --export' wrote, or the first of its volumes"))
			}
			return nil
		},
	}
	var keys string
	cmd.Flags().StringVar(&keys, "verify-key", "", "only accept a bundle signed with one of the public keys in a `file`")
	_ = cmd.MarkFlagFilename("verify-key", "pub")
	format := output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return p.operate(cmd, format.value, func(ctx context.Context, r app.Request, o app.Observer) (*app.Result, error) {
			return p.app.Import(ctx, r, o, args, keys)
		})
	}
	return cmd
}
