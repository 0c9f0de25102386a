// Command probe shows whether pods, Services and DNS of a cluster work. It
// answers HTTP requests on :8080:
//
//	/                    with its host name
//	/get?url=URL         with the answer of a URL, had within 5 seconds
//	/resolve?name=NAME   with the addresses of a name, one per line
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	name, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) })
	http.HandleFunc("/get", answer(get, "url"))
	http.HandleFunc("/resolve", answer(resolve, "name"))
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: timeout}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	go func() {
		<-stop.Done()
		server.Close()
	}()
	log.Println("probe serves on", server.Addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}

// timeout is how long what was asked for may take.
const timeout = 5 * time.Second

// answer serves what f finds for the query's parameter; an error is the text of a 502.
func answer(f func(context.Context, string) (string, error), parameter string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		text, err := f(ctx, r.URL.Query().Get(parameter))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		fmt.Fprint(w, text)
	}
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	request.Close = true // the next one is to find its own way
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	return string(text), err
}

func resolve(ctx context.Context, name string) (string, error) {
	addrs, err := net.DefaultResolver.LookupHost(ctx, name)
	return strings.Join(addrs, "\n") + "\n", err
}
