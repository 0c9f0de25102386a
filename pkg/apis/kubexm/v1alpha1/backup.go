package v1alpha1

import "github.com/kubexm/kubexm/pkg/util/secret"

// Backup configures backups of the cluster: of etcd, and of what the control machine has of it.
type Backup struct {
	// Who can read backups: public keys of age (age1...) or of SSH (ssh-ed25519 ..., ssh-rsa ...). kubexm backup key makes one.
	Recipients []string `json:"recipients,omitempty"`
	// Where backups are kept. Each place gets all of them.
	Targets []BackupTarget `json:"targets,omitempty"`
	// Which backups stay when another one was taken; without it all do. The newest one always stays.
	Keep BackupKeep `json:"keep,omitzero"`
	// When backups are taken on the control machine, once kubexm schedule install was run there, as systemd calendar event (systemd.time(7)), like "*-*-* 02:00:00".
	Schedule string `json:"schedule,omitempty"`
	// When the newest backup is tried there, in the same way.
	Drill *BackupDrill `json:"drill,omitempty"`
}

// BackupDrill says when backups are tried, and with which key.
type BackupDrill struct {
	// When, as systemd calendar event (systemd.time(7)), like "Sun *-*-* 05:00:00".
	Schedule string `json:"schedule" jsonschema:"required"`
	// File on the control machine with a key that opens them. It may be of a recipient of its own, so that the recovery key stays where it is safe.
	IdentityFile string `json:"identityFile" jsonschema:"required"`
}

// BackupTarget is a place where backups are kept: a directory, of the control machine or of a server, or a bucket.
type BackupTarget struct {
	// Directory on the control machine; it may be where NFS is mounted.
	Dir string `json:"dir,omitempty"`
	// Bucket of S3, or of what speaks its protocol.
	S3 *BackupS3 `json:"s3,omitempty"`
	// Directory of a server that speaks SFTP.
	SFTP *BackupSFTP `json:"sftp,omitempty"`
}

// BackupS3 is a bucket of S3.
type BackupS3 struct {
	// URL of the server, like https://minio.example.org:9000.
	Endpoint string `json:"endpoint" jsonschema:"required"`
	// Region, where the server has several.
	Region string `json:"region,omitempty"`
	// Bucket, which must be there.
	Bucket string `json:"bucket" jsonschema:"required"`
	// What the names of backups begin with, like clusters/.
	Prefix string `json:"prefix,omitempty"`
	// Access key.
	AccessKey string `json:"accessKey,omitempty"`
	// Secret key.
	SecretKey secret.Secret `json:"secretKey,omitzero"`
	// Where to read the secret key.
	SecretKeyFrom *SecretSource `json:"secretKeyFrom,omitempty"`
	// Certificates of the authorities that signed the server's, on the control machine (PEM). Default: those of this machine.
	CAFile string `json:"caFile,omitempty" content:"file"`
	// Name the bucket in the name of the host, and not in the path.
	VirtualHost bool `json:"virtualHost,omitempty"`
}

// BackupSFTP is a directory of a server that speaks SFTP. The account needs no shell.
type BackupSFTP struct {
	// IP address or name of the server, as the control machine reaches it.
	Address string `json:"address" jsonschema:"required"`
	// Public key of the server's sshd, or its fingerprint, as for hosts.
	HostKey string `json:"hostKey,omitempty"`
	// Directory, an absolute path as the account sees it. It is made with the first backup.
	Path string `json:"path" jsonschema:"required"`
	Credentials
}

// BackupKeep says which backups stay: those that any field asks for.
type BackupKeep struct {
	// The newest ones.
	Last int `json:"last,omitempty" jsonschema:"minimum=1"`
	// The newest one of each of so many days.
	Daily int `json:"daily,omitempty" jsonschema:"minimum=1"`
	// The newest one of each of so many weeks.
	Weekly int `json:"weekly,omitempty" jsonschema:"minimum=1"`
	// The newest one of each of so many months.
	Monthly int `json:"monthly,omitempty" jsonschema:"minimum=1"`
}
