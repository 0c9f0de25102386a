package config

import (
	"net/url"
	"path/filepath"
	"strings"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
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
		k.rooted("spec.backup.drill.identityFile", d.IdentityFile)
		if len(k.Backup.Targets) == 0 {
			k.fail("spec.backup.drill", "", "needs spec.backup.targets")
		}
	}
	for i, t := range k.Backup.Targets {
		at, kinds := targetPath(i), 0
		if t.Dir != "" {
			kinds++
			k.rooted(at+".dir", t.Dir)
		}
		if t.S3 != nil {
			kinds++
			k.checkS3(at+".s3", t.S3)
		}
		if t.SFTP != nil {
			kinds++
			k.address(at+".sftp.address", t.SFTP.Address)
			k.hostKey(at+".sftp.hostKey", t.SFTP.HostKey)
			k.rooted(at+".sftp.path", t.SFTP.Path)
			k.credentials(at+".sftp", t.SFTP.Credentials, v1alpha1.Credentials{})
		}
		if kinds != 1 {
			k.errs = append(k.errs, Error{Path: at, Msg: "exactly one kind of place must be given", Allowed: []string{"dir", "s3", "sftp"}})
		}
	}
}

// rooted checks a path that goes into no script.
func (k *checker) rooted(at, path string) {
	if path != "" && !filepath.IsAbs(path) {
		k.fail(at, path, "must be an absolute path")
	}
}

func (k *checker) checkS3(at string, s3 *v1alpha1.BackupS3) {
	if u, err := url.Parse(s3.Endpoint); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		value, _, secret := strings.Cut(s3.Endpoint, "@")
		if secret { // a password may be before it
			value = ""
		}
		k.fail(at+".endpoint", value, "must be a URL like https://minio.example.org:9000")
	}
	if s3.Bucket == "" {
		k.fail(at+".bucket", "", "must be given")
	}
	k.secret(at, "secretKey", !s3.SecretKey.IsZero(), s3.SecretKeyFrom, nil)
	if given := !s3.SecretKey.IsZero() || s3.SecretKeyFrom != nil; given != (s3.AccessKey != "") {
		k.fail(at, "", "accessKey needs secretKey or secretKeyFrom")
	}
	if s3.CAFile != "" {
		k.readable(at+".caFile", s3.CAFile)
	}
}
