package main

import (
	"context"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// packages makes a deb and an rpm for each processor.
func (r *release) packages(ctx context.Context) error {
	for _, p := range r.platforms {
		if !p.linux() {
			continue
		}
		for _, kind := range []string{"deb", "rpm"} {
			env := []string{
				"ARCH=" + p.arch, "VERSION=" + r.packageVersion(), "PROGRAM=" + filepath.Join(r.dir, p.program()), "STAGE=" + r.stage,
				"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.date.Unix(), 10),
			}
			err := command(ctx, env, "go", "tool", "-modfile=tools/go.mod", "nfpm", "package", "-f", "hack/release/nfpm.yaml", "-p", kind, "-t", r.named("_"+p.os+"_"+p.arch+"."+kind))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// described is what git describe says: a tag, how many commits it is ago, the commit.
var described = regexp.MustCompile(`^v(\d+(?:\.\d+)*)(?:-([0-9A-Za-z.]+?))?(?:-(\d+)-(g[0-9a-f]+))?$`)

// packageVersion is the version as both dpkg and RPM order it: before a release what has "~",
// after it what has "+". Without a tag it is before all releases, by date.
func (r *release) packageVersion() string {
	tag, dirty := strings.CutSuffix(r.version, "-dirty")
	v := "0~" + r.date.Format("20060102150405") + "." + strings.ReplaceAll(tag, "-", ".")
	if m := described.FindStringSubmatch(tag); m != nil {
		v = m[1]
		if m[2] != "" {
			v += "~" + m[2]
		}
		if m[3] != "" {
			v += "+" + m[3] + "." + m[4]
		}
	}
	if dirty {
		v += "+dirty"
	}
	return v
}
