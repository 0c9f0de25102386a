//go:build e2e

package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/internal/store"
	"github.com/kubexm/kubexm/pkg/engine"
	"github.com/kubexm/kubexm/test/testbed"
)

// watchProcesses notes the command lines of all processes, of this machine and
// of the nodes on it, until it is told to stop.
func watchProcesses(t *testing.T) (stop func() map[string]bool) {
	t.Helper()
	seen, quit, done := map[string]bool{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, f := range files {
				if line, err := os.ReadFile(f); err == nil {
					seen[string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))] = true
				}
			}
			select {
			case <-quit:
				return
			case <-tick.C:
			}
		}
	}()
	return func() map[string]bool {
		close(quit)
		<-done
		return seen
	}
}

// token is the form of a bootstrap token.
var token = regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)

// secretsOf collects everything of a cluster that nobody may read: name: text.
func secretsOf(t *testing.T, c *cluster) map[string]string {
	t.Helper()
	all := map[string]string{"password": testbed.Password}
	add := func(name string, data []byte) {
		for n, line := range strings.Split(string(data), "\n") {
			if n == 1 && len(line) >= 40 { // below the head line; the first bytes of keys of a kind are the same
				all[name] = line[24:]
			}
		}
		if text := base64.StdEncoding.EncodeToString(data); len(text) > 160 {
			all[name+" in base64"] = text[80:140]
		}
	}
	err := filepath.WalkDir(c.dir("certs"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasSuffix(path, "key") || strings.HasSuffix(path, "-key.pem") {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			add(path, data)
		}
		if err == nil && strings.HasSuffix(path, ".password") {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			plain := strings.TrimSpace(string(data))
			all[path], all[path+" in base64"] = plain, base64.StdEncoding.EncodeToString([]byte("kubexm:"+plain))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.externalEtcd() {
		data, err := os.ReadFile(filepath.Join(the.bed.EtcdCerts(), "client.key"))
		must(t, err)
		add("etcd's client key", data)
	}
	data, err := os.ReadFile(the.bed.KeyFile())
	if err != nil {
		t.Fatal(err)
	}
	add("SSH key", data)
	if len(all) < 8 {
		t.Fatalf("only %d secrets found in %s", len(all), c.dir("certs"))
	}
	return all
}

// checkSecrets looks for secrets in the record of runs, in what processes were
// called with and in the journals of the nodes.
func checkSecrets(t *testing.T, c *cluster, processes map[string]bool) {
	t.Helper()
	secrets := secretsOf(t, c)
	look := func(where, text string) {
		for name, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("%s is in %s", name, where)
			}
		}
	}
	kept := func(where string, value any) {
		data, err := json.Marshal(value)
		must(t, err)
		look(where, string(data))
		if found := token.FindAllString(string(data), 3); found != nil {
			t.Errorf("%s seems to hold bootstrap tokens: %q", where, found)
		}
	}
	st, err := store.Open(c.dir(), store.Options{})
	must(t, err)
	defer st.Close()
	runs, err := st.Runs()
	must(t, err)
	for _, r := range runs {
		kept("the record of "+r.ID, r)
		graph, err := st.Graph(r)
		must(t, err)
		kept("the plan of "+r.ID, graph)
		must(t, st.Events(r, 0, func(_ int64, ev engine.Event) error { kept("an event of "+r.ID, ev); return nil }))
	}
	revs, err := st.History()
	must(t, err)
	for _, r := range revs {
		kept("the configuration of "+r.Run.ID, string(r.Resolved))
	}
	if len(processes) < 100 {
		t.Errorf("only %d command lines were seen", len(processes))
	}
	for line := range processes {
		look("a process list: "+line, line)
		if found := token.FindString(line); found != "" {
			t.Errorf("a bootstrap token in a process list: %s", line)
		}
	}
	for _, n := range the.nodes {
		look("the journal of "+n.Name, the.on(t, n, "journalctl -q --no-pager -o cat -b"))
	}
}
