package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

// ResolveSecrets reads every passwordFrom, passphraseFrom and sudoPasswordFrom
// of the hosts, their bastions and of registries, each source once, into the field beside it.
// run runs a shell command line on the control machine and returns its output.
// A sudo password that is not given becomes the login password.
func ResolveSecrets(ctx context.Context, c *v1alpha1.Cluster, run func(ctx context.Context, line string) (string, error)) (warnings Errors, err error) {
	r := resolver{run: run, known: map[v1alpha1.SecretSource]secret.Secret{}, written: map[*v1alpha1.SecretSource]string{}}
	r.name("spec.global", &c.Spec.Global) // first: what hosts take over is written there
	for i := range c.Spec.Hosts {
		r.name(hostPath(i), &c.Spec.Hosts[i].Connection)
	}
	for i := range c.Spec.Hosts {
		h := &c.Spec.Hosts[i]
		r.credentials(ctx, &h.Credentials)
		r.read(ctx, h.SudoPasswordFrom, &h.SudoPassword)
		if h.SudoPassword.IsZero() {
			h.SudoPassword = h.Password
		}
		if h.Bastion != nil {
			r.credentials(ctx, &h.Bastion.Credentials)
		}
	}
	r.registries(ctx, &c.Spec)
	return r.result(c)
}

// ResolveSource returns the source of a cluster with every passwordFrom and proxyFrom read into
// the field beside it, as ResolveSecrets does. The cluster stays as it is: only what fetches
// needs them.
func ResolveSource(ctx context.Context, c *v1alpha1.Cluster, run func(ctx context.Context, line string) (string, error)) (src v1alpha1.Source, warnings Errors, err error) {
	r := resolver{run: run, known: map[v1alpha1.SecretSource]secret.Secret{}, written: map[*v1alpha1.SecretSource]string{}}
	src = c.Spec.Source
	src.Access = maps.Clone(src.Access)
	for _, key := range slices.Sorted(maps.Keys(src.Access)) {
		a := src.Access[key]
		r.written[a.PasswordFrom], r.written[a.ProxyFrom] = accessPath(key)+".passwordFrom", accessPath(key)+".proxyFrom"
		r.read(ctx, a.PasswordFrom, &a.Password)
		proxy := secret.New(a.Proxy)
		r.read(ctx, a.ProxyFrom, &proxy)
		a.Proxy = proxy.Reveal()
		src.Access[key] = a
	}
	warnings, err = r.result(c)
	return src, warnings, err
}

// ResolveBackup returns spec.backup of a cluster with every secretKeyFrom, passwordFrom and passphraseFrom read into the field beside it, as ResolveSecrets does. The cluster stays as it is: only what
// reads and writes backups needs them.
func ResolveBackup(ctx context.Context, c *v1alpha1.Cluster, run func(ctx context.Context, line string) (string, error)) (b v1alpha1.Backup, warnings Errors, err error) {
	r := resolver{run: run, known: map[v1alpha1.SecretSource]secret.Secret{}, written: map[*v1alpha1.SecretSource]string{}}
	b = c.Spec.Backup
	b.Targets = slices.Clone(b.Targets)
	for i, t := range b.Targets {
		if t.S3 != nil {
			s3 := *t.S3
			r.written[s3.SecretKeyFrom] = targetPath(i) + ".s3.secretKeyFrom"
			r.read(ctx, s3.SecretKeyFrom, &s3.SecretKey)
			b.Targets[i].S3 = &s3
		}
		if t.SFTP != nil {
			server := *t.SFTP
			r.name(targetPath(i)+".sftp", &v1alpha1.Connection{Credentials: server.Credentials})
			r.credentials(ctx, &server.Credentials)
			b.Targets[i].SFTP = &server
		}
	}
	warnings, err = r.result(c)
	return b, warnings, err
}

func targetPath(i int) string { return fmt.Sprintf("spec.backup.targets[%d]", i) }

// longestExec is how long a command that gives a secret may take. It has no terminal: nobody can answer what it asks.
const longestExec = time.Minute

type resolver struct {
	run            func(context.Context, string) (string, error)
	known          map[v1alpha1.SecretSource]secret.Secret
	written        map[*v1alpha1.SecretSource]string // fields; a source that is taken over is the same
	errs, warnings Errors
	advice         []string // one for each of errs
}

// result places what was found in the file that the cluster was read from.
func (r *resolver) result(c *v1alpha1.Cluster) (warnings Errors, err error) {
	warnings = r.warnings.place(c.Origin.File, c.Origin.Lines)
	if len(r.errs) == 0 {
		return warnings, nil
	}
	err = fault.Advise(r.errs.place(c.Origin.File, c.Origin.Lines), strings.Join(r.advice, "\n"))
	return warnings, fault.Exit(err, fault.ExitUsage)
}

// name notes where the sources of a connection are written.
func (r *resolver) name(path string, c *v1alpha1.Connection) {
	note := func(field string, from *v1alpha1.SecretSource) {
		if r.written[from] == "" {
			r.written[from] = path + "." + field
		}
	}
	note("passwordFrom", c.PasswordFrom)
	note("passphraseFrom", c.PassphraseFrom)
	note("sudoPasswordFrom", c.SudoPasswordFrom)
	if c.Bastion != nil {
		note("bastion.passwordFrom", c.Bastion.PasswordFrom)
		note("bastion.passphraseFrom", c.Bastion.PassphraseFrom)
	}
}

func (r *resolver) registries(ctx context.Context, s *v1alpha1.Spec) {
	all := s.Registry
	if all == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(all.Auth)) {
		a := all.Auth[name]
		r.written[a.PasswordFrom] = authPath(name) + ".passwordFrom"
		r.read(ctx, a.PasswordFrom, &a.Password)
		if bad := badPassword(s, a.Password.Reveal()); bad != "" && a.PasswordFrom != nil && name == all.PrivateRegistry {
			r.errs = append(r.errs, Error{Path: r.written[a.PasswordFrom], Msg: "gives " + bad})
			r.advice = append(r.advice, "give the private registry another password there, or leave its login out: kubexm then creates one")
		}
		all.Auth[name] = a
	}
}

func (r *resolver) credentials(ctx context.Context, c *v1alpha1.Credentials) {
	r.read(ctx, c.PasswordFrom, &c.Password)
	r.read(ctx, c.PassphraseFrom, &c.Passphrase)
}

// read reports a source that gives nothing once, at the first field that names it.
func (r *resolver) read(ctx context.Context, from *v1alpha1.SecretSource, into *secret.Secret) {
	if from == nil {
		return
	}
	if _, ok := r.known[*from]; !ok {
		text, advice, err := r.text(ctx, r.written[from], *from)
		text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
		if err == nil && text == "" {
			err = errors.New("gives nothing")
		}
		if err != nil {
			r.errs = append(r.errs, Error{Path: r.written[from], Msg: err.Error()})
			r.advice = append(r.advice, advice)
		}
		r.known[*from] = secret.New(text)
	}
	*into = r.known[*from]
}

// text reads a source, and says what to do where that gives nothing.
func (r *resolver) text(ctx context.Context, path string, from v1alpha1.SecretSource) (text, advice string, err error) {
	switch {
	case from.Env != "":
		text, ok := os.LookupEnv(from.Env)
		if !ok {
			err = fmt.Errorf("the environment variable %s is not set", from.Env)
		}
		return text, fmt.Sprintf("set %s for this shell, unseen: read -rs %[1]s; export %[1]s", from.Env), err
	case from.File != "":
		file := expandHome(from.File)
		if info, err := os.Stat(file); err == nil && info.Mode()&0o077 != 0 {
			r.warnings = append(r.warnings, Error{Path: path + ".file", Value: from.File, Msg: "others can read this secret; chmod 600 it"})
		}
		text, err := os.ReadFile(file)
		return string(text), "write the secret to the file " + file + ", and chmod 600 it", err
	default:
		timed, cancel := context.WithTimeoutCause(ctx, longestExec, fmt.Errorf("it has not ended after %s", longestExec))
		defer cancel()
		text, err := r.run(timed, from.Exec)
		if err != nil && ctx.Err() == nil && timed.Err() != nil {
			err = context.Cause(timed)
		}
		if err != nil {
			err = fmt.Errorf("running the command that gives the secret: %w", err)
		}
		return text, "run it yourself to see what it says: " + from.Exec, err
	}
}

// plainSecret returns the path of the first secret that stands in the
// configuration itself, or "".
func plainSecret(c *v1alpha1.Cluster) string {
	if path := plainIn("spec.global", c.Spec.Global); path != "" {
		return path
	}
	for i, h := range c.Spec.Hosts {
		if path := plainIn(hostPath(i), h.Connection); path != "" {
			return path
		}
	}
	for key, a := range c.Spec.Source.Access {
		if !a.Password.IsZero() {
			return accessPath(key) + ".password"
		}
	}
	for i, t := range c.Spec.Backup.Targets {
		if t.S3 != nil && !t.S3.SecretKey.IsZero() {
			return targetPath(i) + ".s3.secretKey"
		}
		if t.SFTP != nil {
			if path := plainIn(targetPath(i)+".sftp", v1alpha1.Connection{Credentials: t.SFTP.Credentials}); path != "" {
				return path
			}
		}
	}
	if reg := c.Spec.Registry; reg != nil {
		for _, name := range slices.Sorted(maps.Keys(reg.Auth)) {
			if !reg.Auth[name].Password.IsZero() {
				return authPath(name) + ".password"
			}
		}
	}
	return ""
}

func plainIn(path string, c v1alpha1.Connection) string {
	type named struct {
		name  string
		value secret.Secret
	}
	all := []named{{"password", c.Password}, {"passphrase", c.Passphrase}, {"sudoPassword", c.SudoPassword}}
	if c.Bastion != nil {
		all = append(all, named{"bastion.password", c.Bastion.Password}, named{"bastion.passphrase", c.Bastion.Passphrase})
	}
	for _, s := range all {
		if !s.value.IsZero() {
			return join(path, s.name)
		}
	}
	return ""
}

// HasSecrets reports whether a configuration holds secrets itself, or cannot be read.
func HasSecrets(text []byte) bool {
	c, _ := decode(text)
	return c == nil || plainSecret(c) != ""
}
