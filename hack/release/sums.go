package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubexm/kubexm/pkg/signature"
)

const (
	sumsFile = "SHA256SUMS"
	space    = "file" // the namespace of signatures of files in ssh-keygen(1)
)

type checksum struct{ name, sum string }

// checksums returns those of all files below a directory but their own, by name.
func checksums(dir string) (all []checksum, err error) {
	root := os.DirFS(dir)
	return all, fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == sumsFile {
			return err
		}
		f, err := root.Open(path)
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		err = errors.Join(err, f.Close())
		all = append(all, checksum{path, hex.EncodeToString(sum.Sum(nil))})
		return err
	})
}

// sums writes the checksums of all files, as sha256sum does.
func (r *release) sums() error {
	all, err := checksums(r.dir)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, f := range all {
		fmt.Fprintf(&text, "%s  %s\n", f.sum, f.name)
	}
	return os.WriteFile(filepath.Join(r.dir, sumsFile), []byte(text.String()), 0o644)
}

// sign signs the checksums, where there is a key to: ssh-keygen -Y verify -n file -s SHA256SUMS.sig < SHA256SUMS.
func (r *release) sign() error {
	if r.key == "" {
		return nil
	}
	path := filepath.Join(r.dir, sumsFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	key, err := signature.Open(r.key)
	if err != nil {
		return err
	}
	defer key.Close()
	signed, err := key.Sign(space, text)
	if err != nil {
		return err
	}
	return os.WriteFile(path+".sig", signed, 0o644)
}
