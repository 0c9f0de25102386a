// Command probe shows whether pods, Services and DNS of a cluster work. It
// answers HTTP requests on :8080:
//
//	/                    with its host name
//	/get?url=URL         with the answer of a URL, had within 5 seconds
//	/resolve?name=NAME   with the addresses of a name, one per line
//	/api                 ok, if the API takes the pod's account: as older clients do, it reads only once by what it knows API servers, and the token each time
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	http.HandleFunc("/api", answer(client().ask, ""))
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

// account is where a pod has what it logs in with.
const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

// api is a client of the API.
type api struct{ http *http.Client }

// client makes one. Where the pod has no account, nobody is believed.
func client() *api {
	roots := x509.NewCertPool()
	authority, _ := os.ReadFile(account + "ca.crt")
	roots.AppendCertsFromPEM(authority)
	return &api{&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}}
}

// ask lists the API's groups, which only those may who have logged in. Where the server is away it asks again, as client libraries do.
func (a *api) ask(ctx context.Context, _ string) (string, error) {
	for {
		said, err := a.groups(ctx)
		var away *net.OpError
		if !errors.As(err, &away) && !errors.Is(err, io.EOF) {
			return said, err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (a *api) groups(ctx context.Context) (string, error) {
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))+"/apis", nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	answer, err := a.http.Do(request)
	if err != nil {
		return "", err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the API answers %s", answer.Status)
	}
	return "ok\n", nil
}
