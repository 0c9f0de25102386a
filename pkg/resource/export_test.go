package resource

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/content"

	"github.com/kubexm/kubexm/pkg/util/golden"
)

func TestExport(t *testing.T) {
	u, s := gallery(t)
	u.pushIndex(t, "registry.k8s.io/metrics", "1")
	refs := []string{pause, "registry.k8s.io/metrics:1"}
	for _, ref := range refs {
		mustPull(t, s, ref, "amd64", "arm64")
	}
	u.Close()
	var out, again bytes.Buffer
	if err := errors.Join(s.Export(t.Context(), &out, "amd64", refs...), s.Export(t.Context(), &again, "amd64", refs...)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("the same images give other bytes")
	}
	if size, err := s.ExportSize("amd64", refs...); err != nil || size != int64(out.Len()) {
		t.Errorf("ExportSize: got %d, %v, want %d", size, err, out.Len())
	}
	var names strings.Builder
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&names, "%v %s %d\n", h.FileInfo().Mode(), h.Name, h.Size)
		if sum, ok := strings.CutPrefix(h.Name, "blobs/sha256/"); ok && sumOf(text) != sum {
			t.Errorf("%s is damaged", h.Name)
		} else if !ok {
			fmt.Fprintf(&names, "  %s\n", text)
		}
	}
	golden.Equal(t, names.String())
}

func TestExportFails(t *testing.T) {
	_, s := gallery(t)
	if err := s.Export(t.Context(), io.Discard, "amd64", pause); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of an image that is not there: %v", err)
	}
	mustPull(t, s, pause, "amd64")
	ctx, cancel := newCancel(t)
	cancel(errors.New("stopped by the user"))
	if err := s.Export(ctx, io.Discard, "amd64", pause); err == nil || err.Error() != "stopped by the user" {
		t.Errorf("canceled: %v", err)
	}
	layer := s.blobPath(digest.FromBytes(noise(1, 300_000)))
	before, err := os.Stat(layer)
	err = errors.Join(err, os.WriteFile(layer, noise(9, 300_000), 0o644))
	if err := errors.Join(err, os.Chtimes(layer, before.ModTime(), before.ModTime())); err != nil {
		t.Fatal(err)
	}
	if err := s.Export(t.Context(), io.Discard, "amd64", pause); !errors.Is(err, content.ErrMismatchedDigest) {
		t.Errorf("of a damaged layer that looks whole: %v", err)
	}
}
