package mirror

import (
	"net/http"
	"time"
)

// A Fault is how one answer goes wrong. The zero value is no fault.
type Fault struct {
	Delay    time.Duration // before the answer starts
	Status   int           // answer with this code and nothing else
	CutAfter int64         // break the connection after so many bytes of the body
	Corrupt  bool          // change the first byte of the body: checksums do not match
}

// WithFaults makes a server misbehave as decide says for each request.
func WithFaults(next http.Handler, decide func(*http.Request) Fault) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := decide(r)
		select {
		case <-time.After(f.Delay):
		case <-r.Context().Done():
			return
		}
		if f.Status != 0 {
			http.Error(w, http.StatusText(f.Status), f.Status)
			return
		}
		next.ServeHTTP(&faulty{ResponseWriter: w, fault: f}, r)
	})
}

// faulty passes an answer on as its fault wants it.
type faulty struct {
	http.ResponseWriter
	fault Fault
	sent  int64
}

func (w *faulty) Write(b []byte) (int, error) {
	if w.fault.Corrupt && w.sent == 0 && len(b) > 0 {
		b = append([]byte{b[0] ^ 1}, b[1:]...)
	}
	if cut := w.fault.CutAfter; cut > 0 && w.sent+int64(len(b)) > cut {
		w.ResponseWriter.Write(b[:cut-w.sent])
		http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	n, err := w.ResponseWriter.Write(b)
	w.sent += int64(n)
	return n, err
}
