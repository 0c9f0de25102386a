package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is a member of an archive; a directory where its name ends in "/".
type file struct {
	name string
	mode int64
	data []byte
}

// archives packs, for each platform, the program and what belongs to it.
func (r *release) archives() error {
	documents, err := tree(r.stage)
	if err != nil {
		return err
	}
	for _, p := range r.platforms {
		program, err := os.ReadFile(filepath.Join(r.dir, p.program()))
		if err != nil {
			return err
		}
		packed, err := pack(append(documents, file{"kubexm", 0o755, program}), r.date)
		if err != nil {
			return err
		}
		if packed, err = compress(packed); err != nil {
			return err
		}
		if err := os.WriteFile(r.named("_"+p.os+"_"+p.arch+".tar.gz"), packed, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tree returns all files and directories below one.
func tree(dir string) (all []file, err error) {
	root := os.DirFS(dir)
	return all, fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || path == ".":
			return err
		case d.IsDir():
			all = append(all, file{path + "/", 0o755, nil})
			return nil
		}
		data, err := fs.ReadFile(root, path)
		all = append(all, file{path, 0o644, data})
		return err
	})
}

// pack returns an archive of files, root's, which depends on nothing but the arguments.
func pack(files []file, date time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range slices.SortedFunc(slices.Values(files), func(a, b file) int { return cmp.Compare(a.name, b.name) }) {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: date, Format: tar.FormatUSTAR}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// compress is gzip without a name and a time.
func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(w, bytes.NewReader(data)); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}
