package place_test

import (
	"bufio"
	"crypto/md5"
	"encoding/base64"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/kubexm/kubexm/pkg/backup/place"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

const (
	accessKey = "AKEXAMPLE"
	secretKey = "hunter2hunter2"
)

type object struct {
	data []byte
	id   string
}

// server speaks as much of S3 as is needed. It answers some requests as a test says.
type server struct {
	*httptest.Server

	mu       sync.Mutex
	objects  map[string]object
	uploads  map[string]map[int][]byte
	ids      map[string]string
	requests map[string]int
	aborted  int

	fail   string // of which kind of request: create, part, complete, abort, get, list, delete
	how    string // 403, 500, NoSuchBucket..., cut, lost (done, but the answer is cut), corrupt
	times  int    // how often; 0: always
	during func() // is called for such a request
	noSum  bool   // has no checksums of objects
	page   int    // objects of one answer to list
}

func serve(t *testing.T, encrypted bool) *server {
	t.Helper()
	minio.DefaultRetryUnit = 1 // pauses between attempts prove nothing
	s := &server{objects: map[string]object{}, uploads: map[string]map[int][]byte{}, ids: map[string]string{}, requests: map[string]int{}, page: 2}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if encrypted {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *server) config() place.S3 {
	c := place.S3{
		Endpoint: s.URL, Bucket: "backups", Prefix: "/site/a/", AccessKey: accessKey, SecretKey: secret.New(secretKey),
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
	}
	if cert := s.Certificate(); cert != nil {
		c.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	}
	return c
}

func (s *server) place(t *testing.T) place.Place {
	t.Helper()
	p, err := place.NewS3(s.config())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func kind(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case q.Has("uploads"):
		return "create"
	case r.Method == http.MethodPut && q.Has("partNumber"):
		return "part"
	case r.Method == http.MethodPost:
		return "complete"
	case r.Method == http.MethodDelete && q.Has("uploadId"):
		return "abort"
	case q.Has("list-type"):
		return "list"
	}
	return strings.ToLower(r.Method)
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := kind(r)
	body, err := content(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[what]++
	how := ""
	if what == s.fail && (s.times == 0 || s.requests[what] <= s.times) {
		how = s.how
		if s.during != nil {
			s.during()
		}
	}
	key, inBucket := strings.CutPrefix(r.URL.Path, "/backups/")
	sum := md5.Sum(body)
	switch {
	case !strings.Contains(r.Header.Get("Authorization"), "Credential="+accessKey+"/"):
		answer(w, http.StatusForbidden, "InvalidAccessKeyId")
	case !inBucket:
		answer(w, http.StatusNotFound, "NoSuchBucket")
	case err != nil, what == "part" && r.Header.Get("Content-Md5") != base64.StdEncoding.EncodeToString(sum[:]):
		answer(w, http.StatusBadRequest, "BadDigest")
	case how == "403":
		answer(w, http.StatusForbidden, "AccessDenied")
	case how == "500":
		answer(w, http.StatusInternalServerError, "InternalError")
	case strings.HasPrefix(how, "No"):
		answer(w, http.StatusNotFound, how)
	case how == "page":
		fmt.Fprint(w, "<html><p>Hello & welcome")
	case how == "cut" && what != "get":
		panic(http.ErrAbortHandler)
	case how == "lost":
		s.do(httptest.NewRecorder(), r, what, key, body, "")
		panic(http.ErrAbortHandler)
	default:
		s.do(w, r, what, key, body, how)
	}
}

func (s *server) do(w http.ResponseWriter, r *http.Request, what, key string, body []byte, how string) {
	id := r.URL.Query().Get("uploadId")
	if _, ok := s.uploads[id]; id != "" && !ok {
		answer(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	switch what {
	case "create":
		id = strconv.Itoa(len(s.ids) + 1)
		s.uploads[id], s.ids[id] = map[int][]byte{}, r.Header.Get("X-Amz-Meta-Kubexm-Upload")
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><Bucket>backups</Bucket><Key>%s</Key><UploadId>%s</UploadId></InitiateMultipartUploadResult>", key, id)
	case "part":
		n, _ := strconv.Atoi(r.URL.Query().Get("partNumber"))
		s.uploads[id][n] = body
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, len(body)))
	case "complete":
		var all []byte
		for _, n := range slices.Sorted(maps.Keys(s.uploads[id])) {
			all = append(all, s.uploads[id][n]...)
		}
		s.objects[key] = object{all, s.ids[id]}
		delete(s.uploads, id)
		fmt.Fprintf(w, `<CompleteMultipartUploadResult><Bucket>backups</Bucket><Key>%s</Key><ETag>"1"</ETag></CompleteMultipartUploadResult>`, key)
	case "abort":
		delete(s.uploads, id)
		s.aborted++
		w.WriteHeader(http.StatusNoContent)
	case "get", "head":
		s.get(w, what, key, how)
	case "list":
		s.list(w, r.URL.Query())
	case "delete":
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		answer(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func (s *server) get(w http.ResponseWriter, what, key, how string) {
	o, ok := s.objects[key]
	if !ok {
		answer(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	h := w.Header()
	h.Set("Content-Length", strconv.Itoa(len(o.data)))
	h.Set("Last-Modified", "Wed, 25 Nov 2026 13:05:01 GMT")
	h.Set("X-Amz-Meta-Kubexm-Upload", o.id)
	if !s.noSum {
		crc := crc32.NewIEEE()
		_, _ = crc.Write(o.data)
		h.Set("X-Amz-Checksum-Crc32", base64.StdEncoding.EncodeToString(crc.Sum(nil)))
		h.Set("X-Amz-Checksum-Type", "FULL_OBJECT")
	}
	data := slices.Clone(o.data)
	switch {
	case what == "head":
		return
	case how == "corrupt":
		data[len(data)/2] ^= 1
	case how == "cut":
		_, _ = w.Write(data[:len(data)/2])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(data)
}

func (s *server) list(w io.Writer, q url.Values) {
	type entry struct {
		Key  string
		Size int
	}
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Contents              []entry
		IsTruncated           bool
		NextContinuationToken string
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, q.Get("prefix")) || key <= q.Get("continuation-token") {
			continue
		}
		if out.IsTruncated = len(out.Contents) == s.page; out.IsTruncated {
			out.NextContinuationToken = out.Contents[s.page-1].Key
			break
		}
		out.Contents = append(out.Contents, entry{key, len(s.objects[key].data)})
	}
	_ = xml.NewEncoder(w).Encode(out)
}

func answer(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Amz-Request-Id", "R1")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>that is how\n it is</Message></Error>", code)
}

// content reads the body of a request. Without TLS it has a signature before each chunk
// (https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html).
func content(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		return io.ReadAll(r.Body)
	}
	var all []byte
	for in := bufio.NewReader(r.Body); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		digits, _, _ := strings.Cut(line, ";")
		n, err := strconv.ParseInt(digits, 16, 32)
		if err != nil {
			return nil, err
		}
		chunk := make([]byte, n+2)
		if _, err := io.ReadFull(in, chunk); err != nil {
			return nil, err
		}
		if all = append(all, chunk[:n]...); n == 0 {
			return all, nil
		}
	}
}
