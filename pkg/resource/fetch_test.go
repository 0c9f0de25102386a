package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
)

// program is what is published in these tests, half of it.
var (
	program = noise(7, 400_000)
	half    = len(program) / 2
)

// scene is one Fetch of kubelet 1.99.7 under trouble.
type scene struct {
	*upstream
	t     *testing.T
	store *Store
	a     Artifact
	file  string // in the store
}

func newScene(t *testing.T) *scene {
	u := newUpstream(t)
	sc := &scene{upstream: u, t: t, store: openStore(t, t.TempDir(), u), a: mustNew(t, "kubelet", "v1.99.7")}
	sc.file = sc.store.path(sc.a)
	u.publish(t, sc.a, program)
	return sc
}

// leave puts a half-done download into the store, as of a killed process.
func (sc *scene) leave(part []byte, from origin) {
	text, err := json.Marshal(from)
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(sc.file), 0o755),
		os.WriteFile(sc.file+".part", part, 0o644), os.WriteFile(sc.file+".part.origin", text, 0o644)); err != nil {
		sc.t.Fatal(err)
	}
}

// first lets f answer the first n requests for the program.
func (sc *scene) first(n int, f http.HandlerFunc) {
	var asked atomic.Int64
	sc.fail("/kubelet", func(w http.ResponseWriter, r *http.Request) bool {
		if asked.Add(1) > int64(n) {
			return false
		}
		f(w, r)
		return true
	})
}

func (sc *scene) cut(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", etag(program))
	http.ServeContent(&cutter{w, half}, r, "", time.Time{}, bytes.NewReader(program))
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(code)
	}
}

func TestFetchInTrouble(t *testing.T) {
	rest := fmt.Sprintf("kubelet bytes=%d-%d", half, len(program)-1)
	same := rest + " " + etag(program)
	tests := []struct {
		name string
		set  func(*scene)
		want []string // requests
	}{
		{"none", func(*scene) {}, []string{"kubelet"}},
		{"cut, resumed", func(sc *scene) { sc.first(1, sc.cut) }, []string{"kubelet", same}},
		{"stalled, resumed", func(sc *scene) {
			sc.store.retry.Stall = 50 * time.Millisecond
			sc.first(1, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", etag(program))
				w.Header().Set("Content-Length", fmt.Sprint(len(program)))
				_, _ = w.Write(program[:half])
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			})
		}, []string{"kubelet", same}},
		{"stalled before the first byte", func(sc *scene) {
			sc.store.retry.Stall = 50 * time.Millisecond
			sc.first(1, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		}, []string{"kubelet", "kubelet"}},
		{"cut, server without ranges", func(sc *scene) {
			sc.first(2, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", fmt.Sprint(len(program)))
				if r.Header.Get("Range") == "" {
					w = &cutter{w, half}
				}
				_, _ = w.Write(program)
			})
		}, []string{"kubelet", rest}},
		{"cut, then another file", func(sc *scene) {
			sc.first(1, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("ETag", `"old"`)
				w.Header().Set("Content-Length", fmt.Sprint(len(program)))
				_, _ = (&cutter{w, half}).Write(noise(8, len(program)))
			})
		}, []string{"kubelet", rest + ` "old"`}},
		{"a part of something else", func(sc *scene) {
			sc.leave(noise(8, half), origin{URL: "https://elsewhere", Version: `"x"`, Size: int64(len(program))})
		}, []string{rest, "kubelet"}},
		{"a part of a longer file", func(sc *scene) {
			sc.leave(noise(8, len(program)+1), origin{URL: "https://elsewhere", Size: int64(len(program) + 2)})
		}, []string{fmt.Sprintf("kubelet bytes=%d-%d", len(program)+1, len(program)+1), "kubelet"}},
		{"the part of a killed process", func(sc *scene) {
			sc.leave(program[:half], origin{URL: "https://elsewhere", Version: `"x"`, Size: -1})
		}, []string{fmt.Sprintf("kubelet bytes=%d-", half)}},
		{"killed between the last byte and the rename", func(sc *scene) {
			sc.leave(program, origin{Size: int64(len(program))})
		}, nil},
		{"overloaded twice", func(sc *scene) { sc.first(2, status(503)) }, []string{"kubelet", "kubelet", "kubelet"}},
		{"said to be longer than it is", func(sc *scene) {
			sc.first(1, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", fmt.Sprint(len(program)+10))
				_, _ = w.Write(program)
			})
		}, []string{"kubelet"}},
		{"too many requests", func(sc *scene) { sc.first(1, status(429)) }, []string{"kubelet", "kubelet"}},
		{"a damaged file in the store", func(sc *scene) {
			mustFetch(sc.t, sc.store, sc.a, program)
			if err := os.WriteFile(sc.file, noise(9, len(program)), 0o644); err != nil {
				sc.t.Fatal(err)
			}
			sc.requests()
		}, []string{"kubelet"}},
		{"would be packed on the way", func(sc *scene) {
			sc.fail("/kubelet", func(_ http.ResponseWriter, r *http.Request) bool {
				if got := r.Header.Get("Accept-Encoding"); got != "identity" {
					sc.t.Errorf("Accept-Encoding: %q", got)
				}
				return false
			})
		}, []string{"kubelet"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sc := newScene(t)
			tt.set(sc)
			mustFetch(t, sc.store, sc.a, program)
			nothingLeft(t, sc.store)
			var got []string
			for _, r := range sc.requests() {
				if !strings.HasPrefix(r, "kubelet.s") { // its checksum, its signature
					got = append(got, r)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFetchFails(t *testing.T) {
	tests := []struct {
		name string
		set  func(*scene)
	}{
		{"wrong checksum", func(sc *scene) {
			sc.fail("/kubelet", func(w http.ResponseWriter, _ *http.Request) bool {
				_, _ = io.WriteString(w, "<html>log in to the hotel's network</html>")
				return true
			})
		}},
		{"said to be shorter than it is", func(sc *scene) {
			sc.first(100, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(program[:half]) })
		}},
		{"not there", func(sc *scene) { sc.first(100, status(404)) }},
		{"always overloaded", func(sc *scene) { sc.first(100, status(503)) }},
		{"always cut at the same byte", func(sc *scene) {
			sc.first(100, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", fmt.Sprint(len(program)))
				_, _ = (&cutter{w, half}).Write(program)
			})
		}},
		{"hung up on", func(sc *scene) {
			sc.first(100, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		}},
		{"no checksum published", func(sc *scene) {
			sc.fail("/kubelet.sha256", func(w http.ResponseWriter, _ *http.Request) bool { status(404)(w, nil); return true })
		}},
		{"no checksum in the answer", func(sc *scene) {
			sc.fail("/kubelet.sha256", func(w http.ResponseWriter, _ *http.Request) bool {
				_, _ = io.WriteString(w, strings.Repeat("0", 64)+"  kubectl\n")
				return true
			})
		}},
		{"offline", func(sc *scene) { sc.store.source.Offline = true }},
		{"offline, checksum known", func(sc *scene) {
			if _, err := sc.store.Resolve(sc.t.Context(), sc.a); err != nil {
				sc.t.Fatal(err)
			}
			sc.store.source.Offline = true
		}},
		{"a password in the URL", func(sc *scene) {
			sc.store.source.Mirrors = map[string]string{"https://": strings.Replace(sc.URL, "http://", "http://me:hush@", 1) + "/"}
			sc.first(100, status(403))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sc := newScene(t)
			tt.set(sc)
			_, err := sc.store.Fetch(t.Context(), sc.a, nil)
			golden.Equal(t, told(err, sc.URL, "MIRROR", strings.Replace(sc.URL, "http://", "http://me:xxxxx@", 1), "MIRROR(me:xxxxx)", sc.store.dir, "STORE"))
			if _, err := os.Stat(sc.file); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file is there: %v", err)
			}
			if tt.name != "always cut at the same byte" {
				nothingLeft(t, sc.store)
			}
		})
	}
}

func TestFetchFallsBackToTheOriginal(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*scene)
	}{
		{"mirror down", func(sc *scene) { sc.Close() }},
		{"mirror wrong", func(sc *scene) { sc.publish(sc.t, sc.a, noise(9, 1000)) }},
		{"mirror without it", func(sc *scene) { sc.first(100, status(404)) }},
		{"mirror breaks off for good", func(sc *scene) {
			sc.first(1, sc.cut)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sc, origin := newScene(t), newUpstream(t)
			origin.publish(t, sc.a, program)
			original(sc.store, origin)
			if _, err := sc.store.Resolve(t.Context(), sc.a); err != nil {
				t.Fatal(err)
			}
			tt.set(sc)
			mustFetch(t, sc.store, sc.a, program)
		})
	}
}

func TestFetchIsNotRepeated(t *testing.T) {
	sc := newScene(t)
	mustFetch(t, sc.store, sc.a, program)
	sc.Close()
	mustFetch(t, sc.store, sc.a, program)
	again := openStore(t, sc.store.dir, sc.upstream)
	mustFetch(t, again, sc.a, program)
	list := filepath.Join(filepath.Dir(sc.file), "SHA256SUMS")
	if err := os.Remove(list); err != nil { // as if killed before it was written
		t.Fatal(err)
	}
	again.source.Offline = true
	mustFetch(t, again, sc.a, program)
	sums, err := os.ReadFile(list)
	if want := sumOf(program) + "  kubelet\n"; err != nil || string(sums) != want {
		t.Errorf("SHA256SUMS: got %q, %v, want %q", sums, err, want)
	}
}

func TestFetchSideBySide(t *testing.T) {
	sc := newScene(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := sc.store.Fetch(t.Context(), sc.a, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := strings.Join(sc.requests(), "\n") + "\n"; strings.Count(got, "kubelet\n") != 1 {
		t.Errorf("downloaded more than once: %q", got)
	}
	mustFetch(t, sc.store, sc.a, program)
	nothingLeft(t, sc.store)
}

func TestFetchProgress(t *testing.T) {
	sc := newScene(t)
	sc.first(1, sc.cut)
	last := int64(0)
	_, err := sc.store.Fetch(t.Context(), sc.a, func(done, total int64) {
		if done < last || total != int64(len(program)) {
			t.Errorf("progress: %d of %d after %d", done, total, last)
		}
		last = done
	})
	if err != nil || last != int64(len(program)) {
		t.Errorf("got %v, last progress %d", err, last)
	}
}

func TestFetchCanceled(t *testing.T) {
	sc := newScene(t)
	ctx, cancel := newCancel(t)
	sc.first(100, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(program[:half])
		w.(http.Flusher).Flush()
		cancel(errors.New("stopped by the user"))
		<-r.Context().Done()
	})
	_, err := sc.store.Fetch(ctx, sc.a, nil)
	if err == nil || !strings.Contains(err.Error(), "stopped by the user") || fault.IsTransient(err) {
		t.Errorf("got %v", err)
	}
	sc.first(0, nil)
	mustFetch(t, sc.store, sc.a, program)
}
