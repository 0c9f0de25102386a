package config

import (
	"context"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
)

// TestResolveBackup reads the secrets of places of backups, and leaves the configuration as it was.
func TestResolveBackup(t *testing.T) {
	const head = "apiVersion: kubexm.io/v1alpha1\nkind: Cluster\nmetadata: {name: prod}\nspec:\n  hosts: [{name: node1, address: 10.0.0.11, roles: [master, etcd]}]\n  backup:\n    targets:\n"
	parse := func(targets string) (text []byte, c *v1alpha1.Cluster) {
		text = []byte(head + targets)
		c, _, err := Parse("cluster.yaml", text)
		if err != nil {
			t.Fatal(err)
		}
		return text, c
	}
	run := func(_ context.Context, line string) (string, error) { return "from " + line, nil }
	text, c := parse("    - s3: {endpoint: 'https://minio.example.org', bucket: b, accessKey: k, secretKeyFrom: {exec: a}}\n" +
		"    - sftp: {address: nas, path: /b, passwordFrom: {exec: b}, passphraseFrom: {exec: c}}\n")
	b, _, err := ResolveBackup(t.Context(), c, run)
	if err != nil {
		t.Fatal(err)
	}
	s3, sftp := b.Targets[0].S3, b.Targets[1].SFTP
	if got := s3.SecretKey.Reveal() + sftp.Password.Reveal() + sftp.Passphrase.Reveal(); got != "from afrom bfrom c" || plainSecret(c) != "" || HasSecrets(text) {
		t.Errorf("got %q; the configuration has %q", got, plainSecret(c))
	}
	if sftp.User != "root" || sftp.Port != 22 {
		t.Errorf("as %s, port %d", sftp.User, sftp.Port)
	}
	_, c = parse("    - dir: /mnt\n    - sftp: {address: nas, path: /b, passwordFrom: {env: KX_TEST_NONE}}\n")
	if _, _, err := ResolveBackup(t.Context(), c, run); err == nil || !strings.Contains(err.Error(), "spec.backup.targets[1].sftp.passwordFrom: the environment variable KX_TEST_NONE is not set") {
		t.Error(err)
	}
	text, c = parse("    - sftp: {address: nas, path: /b, password: hunter2}\n")
	if at := plainSecret(c); at != "spec.backup.targets[0].sftp.password" || !HasSecrets(text) {
		t.Errorf("a secret stands at %q", at)
	}
}
