package config

import (
	"net/url"
	"path/filepath"

	"github.com/kubexm/kubexm/pkg/backup"
)

// checkBackup checks who can read backups, and where they go.
func (k *checker) checkBackup() {
	for _, r := range k.Backup.Recipients {
		if _, err := backup.Recipients([]string{r}); err != nil {
			k.fail("spec.backup.recipients", "", "%v", err)
		}
	}
	k.calendar("spec.backup.schedule", k.Backup.Schedule)
	if k.Backup.Schedule != "" && (len(k.Backup.Recipients) == 0 || len(k.Backup.Targets) == 0) {
		k.fail("spec.backup.schedule", k.Backup.Schedule, "needs spec.backup.recipients and spec.backup.targets")
	}
	if d := k.Backup.Drill; d != nil {
		k.calendar("spec.backup.drill.schedule", d.Schedule)
		if d.IdentityFile != "" && !filepath.IsAbs(d.IdentityFile) {
			k.fail("spec.backup.drill.identityFile", d.IdentityFile, "must be an absolute path")
		}
		if len(k.Backup.Targets) == 0 {
			k.fail("spec.backup.drill", "", "needs spec.backup.targets")
		}
	}
	for i, t := range k.Backup.Targets {
		at := targetPath(i)
		if (t.Dir != "") == (t.S3 != nil) {
			k.errs = append(k.errs, Error{Path: at, Msg: "exactly one kind of place must be given", Allowed: []string{"dir", "s3"}})
			continue
		}
		if t.S3 == nil {
			if !filepath.IsAbs(t.Dir) {
				k.fail(at+".dir", t.Dir, "must be an absolute path")
			}
			continue
		}
		at += ".s3"
		if u, err := url.Parse(t.S3.Endpoint); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
			k.fail(at+".endpoint", t.S3.Endpoint, "must be a URL like https://minio.example.org:9000")
		}
		if t.S3.Bucket == "" {
			k.fail(at+".bucket", "", "must be given")
		}
		k.secret(at, "secretKey", !t.S3.SecretKey.IsZero(), t.S3.SecretKeyFrom, nil)
		if given := !t.S3.SecretKey.IsZero() || t.S3.SecretKeyFrom != nil; given != (t.S3.AccessKey != "") {
			k.fail(at, "", "accessKey needs secretKey or secretKeyFrom")
		}
		if t.S3.CAFile != "" {
			k.readable(at+".caFile", t.S3.CAFile)
		}
	}
}
