package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubexm/kubexm/pkg/apis/kubexm/v1alpha1"
	"github.com/kubexm/kubexm/pkg/util/diff"
	"github.com/kubexm/kubexm/pkg/util/fault"
	"github.com/kubexm/kubexm/pkg/util/golden"
	"github.com/kubexm/kubexm/pkg/util/secret"
)

type byHost = map[string][]v1alpha1.Role

// edits are tried on every file of testdata/edit: each has the hosts node1, node2 and node3.
var edits = []struct {
	name string
	Edit
}{
	{"add", Edit{Add: []v1alpha1.Host{{Name: "node4", Address: "192.0.2.14", Roles: []v1alpha1.Role{"worker"}}}}},
	{"add with all", Edit{Add: []v1alpha1.Host{{
		Name: "a", Address: "fd00::1", InternalAddress: "192.0.2.20", Arch: "arm64", Roles: []v1alpha1.Role{"worker", "loadbalancer"},
		Labels: map[string]string{"b": "true", "a": ""}, Annotations: map[string]string{"note": "it's: {x}\n# two lines\n"},
		Taints: []v1alpha1.Taint{{Key: "k", Effect: "NoExecute"}}, HostKey: "SHA256:x",
		Connection: v1alpha1.Connection{
			Credentials: v1alpha1.Credentials{User: "ops", Port: 2222, Password: secret.New("hunter2")}, Bastion: &v1alpha1.Bastion{Address: "gate.example.com"},
		},
	}}}},
	{"remove the first", Edit{Remove: []string{"node1"}}},
	{"remove the second", Edit{Remove: []string{"node2"}}},
	{"remove the last", Edit{Remove: []string{"node3"}}},
	{"replace all", Edit{Remove: []string{"node3", "node1", "node2"}, Add: []v1alpha1.Host{{Name: "new", Address: "192.0.2.20", Roles: []v1alpha1.Role{"master", "etcd"}}}}},
	{"more roles", Edit{Roles: byHost{"node1": {"master", "etcd", "worker"}, "node2": {"master", "etcd", "worker"}}}},
	{"other roles", Edit{Roles: byHost{"node1": {"master"}, "node2": {"loadbalancer"}, "node3": {"worker"}}}},
	{"no roles", Edit{Roles: byHost{"node3": nil}}},
	{"gain", Edit{Gain: map[string]v1alpha1.Role{"node2": "etcd", "node3": "etcd"}}},
	{"lose", Edit{Lose: map[string]v1alpha1.Role{"node2": "worker", "node3": "worker"}}},
	{"move", Edit{Move: map[string]Addresses{"node1": {Address: "198.51.100.1"}, "node2": {"198.51.100.2", "10.0.0.2"}, "node3": {Internal: "10.0.0.3"}}}},
	{"set", Edit{Set: map[string]string{"spec.kubernetes.version": "v1.37.1", "spec.etcd.version": "v3.7.1", "spec.network.flannel.version": "v0.28.9"}}},
}

func TestEdit(t *testing.T) {
	files, _ := filepath.Glob("testdata/edit/*.yaml")
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			was, _ := decode(text)
			for _, e := range edits {
				out, err := e.Apply(text)
				e.Edit = e.settled(&was.Spec)
				fmt.Fprintf(&b, "== %s\n", e.name)
				if err != nil {
					fmt.Fprintf(&b, "%v\n%s\n", err, fault.Advice(err))
					if fault.ExitCode(err) != fault.ExitUsage || strings.Contains(err.Error()+fault.Advice(err), "hunter2") {
						t.Errorf("exit code %d, or a secret is told: %v", fault.ExitCode(err), err)
					}
				} else {
					b.WriteString(diff.Unified("cluster.yaml", string(text), string(out)))
					checkEdit(t, text, out, e.Edit)
					commentsKept(t, text, out, e.Edit)
				}
				sameElsewhere(t, e.name, text, out, e.Edit)
			}
			golden.File(t, strings.TrimSuffix(file, "yaml")+"txt", b.String())
		})
	}
}

// sameElsewhere checks that an edit comes out the same with other ends of lines, of the file, and at its beginning.
func sameElsewhere(t *testing.T, name string, text, out []byte, e Edit) {
	t.Helper()
	for kind, to := range map[string]func([]byte) []byte{
		"CRLF":                  func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")) },
		"no line break at end":  func(b []byte) []byte { return bytes.TrimSuffix(b, []byte("\n")) },
		"a byte order mark":     func(b []byte) []byte { return append([]byte("\xef\xbb\xbf"), b...) },
		"a document mark above": func(b []byte) []byte { return append([]byte("# é\n---\n"), bytes.TrimPrefix(b, []byte("---\n"))...) },
		"another one below":     func(b []byte) []byte { return append(b[:len(b):len(b)], "---\n"...) },
	} {
		if bytes.HasSuffix(text, []byte("...\n")) && kind == "no line break at end" {
			continue
		}
		got, err := e.Apply(to(text))
		if (err == nil) != (out != nil) {
			t.Errorf("%s, %s: %v", name, kind, err)
		} else if err == nil && !bytes.Equal(got, to(out)) {
			t.Errorf("%s, %s: not the same:\n%s", name, kind, diff.Unified("cluster.yaml", string(to(out)), string(got)))
		}
	}
}

func TestEditRefused(t *testing.T) {
	text, err := os.ReadFile("testdata/edit/block.yaml")
	if err != nil {
		t.Fatal(err)
	}
	full := string(text)
	host := v1alpha1.Host{Name: "node4", Address: "192.0.2.14"}
	for name, c := range map[string]struct {
		text string
		Edit
		want string
	}{
		"there already":  {full, Edit{Add: []v1alpha1.Host{{Name: "node1", Address: "192.0.2.11"}}}, `spec.hosts: "node1": is there already`},
		"twice":          {full, Edit{Add: []v1alpha1.Host{host, host}}, `spec.hosts: "node4": is to be added twice`},
		"no address":     {full, Edit{Add: []v1alpha1.Host{{Name: "node4"}}}, `spec.hosts: "node4": a host needs a name and an address`},
		"unknown role":   {full, Edit{Roles: byHost{"node1": {"control-plane"}}}, `spec.hosts: "control-plane": no such role; did you mean "master"?`},
		"not there":      {full, Edit{Remove: []string{"nod2"}}, `spec.hosts: "nod2": no such host; did you mean "node2"?`},
		"roles of none":  {full, Edit{Roles: byHost{"nodee3": nil}}, `spec.hosts: "nodee3": no such host; did you mean "node3"?`},
		"gain of none":   {full, Edit{Gain: map[string]v1alpha1.Role{"x": "etcd"}}, `spec.hosts: "x": no such host`},
		"lose of none":   {full, Edit{Lose: map[string]v1alpha1.Role{"x": "etcd"}}, `spec.hosts: "x": no such host`},
		"move of none":   {full, Edit{Move: map[string]Addresses{"x": {}}}, `spec.hosts: "x": no such host`},
		"gone and moved": {full, Edit{Remove: []string{"node1"}, Move: map[string]Addresses{"node1": {}}}, `spec.hosts: "node1": is to be removed, and something else, too`},
		"all":            {full, Edit{Remove: []string{"node1", "node2", "node3"}}, `spec.hosts: a cluster has at least one host`},
		"mistakes": {
			"kind: Cluster\nspec:\n  hosts: []\n  hunter2\n",
			Edit{Add: []v1alpha1.Host{host}},
			"line 4: not YAML: could not find expected ':'",
		},
		"wrong": {
			strings.Replace(full, "user: ops", "port: hunter2", 1),
			Edit{Add: []v1alpha1.Host{host}},
			"line 6: spec.global.port: must be a whole number without quotes",
		},
		"no anchor": {
			strings.Replace(full, `"hunter2 # no comment"`, "*hunter2", 1),
			Edit{Add: []v1alpha1.Host{host}},
			"line 1: not YAML: an alias of an anchor that is not there before it; a text that begins with * needs quotes",
		},
		"line breaks": {strings.Replace(full, "# Upstairs.", "# Up\u2028stairs.", 1), Edit{Add: []v1alpha1.Host{host}}, `line 16 has a line break that is none of \n and \r\n`},
		"empty":       {"", Edit{Add: []v1alpha1.Host{host}}, "line 1: the file is empty"},
	} {
		_, err := c.Apply([]byte(c.text))
		if got := fmt.Sprint(err); got != "editing the configuration: "+c.want || fault.ExitCode(err) != fault.ExitUsage {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []struct{ entry, name, want string }{
		{"node[1:3]", "node2", "node1 node3"},
		{"node[1:3]", "node1", "node[2:3]"},
		{"node[1:3]", "node3", "node[1:2]"},
		{"node[01:12]-x", "node05-x", "node[01:04]-x node[06:12]-x"},
		{"node[08:11]", "node09", "node08 node[10:11]"},
		{"node[0:2]", "node0", "node[1:2]"},
		{"node[7:7]", "node7", ""},
		{"node1", "node1", ""},
		{"node[1:3]", "node01", "node[1:3]"},
	} {
		if got := strings.Join(without(c.entry, c.name), " "); got != c.want {
			t.Errorf("%s without %s: %q, want %q", c.entry, c.name, got, c.want)
		}
	}
	for _, c := range []struct{ entry, name, want string }{
		{"node[1:3]", "node4", "node[1:4]"},
		{"node[01:09]x", "node10x", "node[01:10]x"},
		{"node[1:9]", "node10", "node[1:10]"},
		{"node[1:3]", "node5", ""},
		{"node[01:03]", "node4", ""},
		{"node[1:3]", "other4", ""},
		{"node3", "node4", ""},
	} {
		if got := longer(c.entry, c.name); got != c.want {
			t.Errorf("%s with %s: %q, want %q", c.entry, c.name, got, c.want)
		}
	}
	if all, err := expand("node[9223372036854775807:9223372036854775807]"); err == nil {
		t.Errorf("a range beyond all numbers: %v", all)
	}
}

// remarks are the comments of a text, and what looks like one.
var remarks = regexp.MustCompile(`(?m)(?:^|[ \t])#.*$`)

var someRange = regexp.MustCompile(`\[\d+:\d+\]`)

// checkEdit checks an edited text in other ways than Apply does: with all defaults, and by its lines.
func checkEdit(t *testing.T, text, out []byte, e Edit) {
	t.Helper()
	was, _, _ := Parse("", text)
	is, _, _ := Parse("", out)
	before, _ := decode(text)
	want := slices.DeleteFunc(was.Spec.Hosts, func(h v1alpha1.Host) bool { return slices.Contains(e.Remove, h.Name) })
	if len(is.Spec.Hosts) != len(want)+len(e.Add) {
		t.Fatalf("%d hosts, want %d", len(is.Spec.Hosts), len(want)+len(e.Add))
	}
	for i, h := range want {
		got := is.Spec.Hosts[i]
		if roles, ok := e.Roles[h.Name]; ok {
			h.Roles = ordered(roles, stacked(&before.Spec))
		}
		if to, ok := e.Move[h.Name]; ok {
			h.Address, h.InternalAddress = got.Address, got.InternalAddress
			if to.Address != "" && to.Address != got.Address || to.Internal != "" && to.Internal != got.InternalAddress {
				t.Errorf("host %s has the addresses %s and %s", h.Name, got.Address, got.InternalAddress)
			}
		}
		if !reflect.DeepEqual(h, got) {
			t.Errorf("host %s is %+v, want %+v", h.Name, got, h)
		}
	}
	for i, h := range e.Add {
		got := is.Spec.Hosts[len(want)+i]
		if got.Name != h.Name || got.Address != h.Address || got.Password != cmp.Or(h.Password, was.Spec.Global.Password) {
			t.Errorf("host %d is %+v, want %+v", i, got, h)
		}
	}
	if len(e.Roles)+len(e.Move) > 0 || someRange.Match(text) {
		return
	}
	if len(e.Remove) == 0 && !remains(text, out) {
		t.Error("something is lost")
	}
	if len(e.Add)+len(e.Set) == 0 && !remains(out, text) {
		t.Error("something has come")
	}
}

// remains reports whether a text is what remains of another where parts of that are taken out.
func remains(text, of []byte) bool {
	for _, b := range of {
		if len(text) > 0 && text[0] == b {
			text = text[1:]
		}
	}
	return len(text) == 0
}

// above is a line that belongs to what is below: a comment, or a dash alone.
var above = regexp.MustCompile(`^\s*(#.*|-\s*(#.*)?)$`)

// spared are the lines of a text in which an edit may remove comments: those of the hosts that it is about and of
// the role groups, with what stands directly above.
func spared(text []byte, e Edit) map[int]bool {
	c, d := decode(text)
	all, starts := map[int]bool{}, slices.Sorted(maps.Values(d.lines))
	lines := strings.Split(string(text), "\n")
	add := func(path, next string) {
		from, to := d.lines[path], d.lines[next]
		if to <= from { // up to what follows that is not in it
			to = len(lines) + 1
			for _, n := range starts {
				if n > from && n < to && !slices.ContainsFunc(slices.Collect(maps.Keys(d.lines)), func(p string) bool { return d.lines[p] == n && strings.HasPrefix(p, path) }) {
					to = n
				}
			}
		}
		for n := from; n > 0 && n < to; n++ {
			all[n] = true
		}
		for n := from - 1; n > 0 && above.MatchString(lines[n-1]); n-- {
			all[n] = true
		}
	}
	for i, h := range c.Spec.Hosts {
		if _, ok := e.Roles[h.Name]; ok || slices.Contains(e.Remove, h.Name) {
			add(hostPath(i), hostPath(i+1))
		}
	}
	if len(e.Remove)+len(e.Roles) > 0 && d.lines["spec.roleGroups"] > 0 {
		add("spec.roleGroups", "")
	}
	return all
}

// commentsKept checks that an edit removes no comments but those that are of what it is about.
func commentsKept(t *testing.T, text, out []byte, e Edit) {
	t.Helper()
	may, left := spared(text, e), remarks.FindAllString(strings.ReplaceAll(string(out), "\r", ""), -1)
	for n, line := range strings.Split(strings.ReplaceAll(string(text), "\r", ""), "\n") {
		for _, c := range remarks.FindAllString(line, -1) {
			if may[n+1] {
				continue
			}
			i := slices.IndexFunc(left, func(l string) bool { return strings.TrimSpace(l) == strings.TrimSpace(c) })
			if i >= 0 {
				left = slices.Delete(left, i, i+1)
			} else {
				t.Errorf("line %d: the comment is lost: %q", n+1, c)
			}
		}
	}
}

// FuzzEdit checks that an edit fails, or does what it is to do and nothing else.
func FuzzEdit(f *testing.F) {
	files, _ := filepath.Glob("testdata/edit/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for what := range byte(8) {
			f.Add(text, what, "node4", "192.0.2.14")
			f.Add(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")), what, "node2", "a: b")
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, what byte, name, address string) {
		c, d := decode(text)
		if c == nil || len(d.errs) > 0 || len(c.Spec.Hosts) == 0 {
			_, err := Edit{}.Apply(text)
			if len(d.errs) > 0 && err == nil {
				t.Error("no error for a text with mistakes")
			}
			return
		}
		host := c.Spec.Hosts[int(what/8)%len(c.Spec.Hosts)].Name
		e := []Edit{
			{Add: []v1alpha1.Host{{Name: name, Address: address, Roles: []v1alpha1.Role{"worker", "etcd"}}}},
			{Add: []v1alpha1.Host{{Name: name, Address: name, Labels: map[string]string{name: address}, Connection: v1alpha1.Connection{Credentials: v1alpha1.Credentials{Password: secret.New(address)}}}}},
			{Remove: []string{host}},
			{Remove: []string{host, name}},
			{Roles: byHost{host: {"master", "worker"}}},
			{Roles: byHost{host: {"etcd"}, name: nil}},
			{Move: map[string]Addresses{host: {Address: address}}},
			{Move: map[string]Addresses{host: {name, address}}},
		}[what%8]
		if _, there := e.Roles[name]; there && !slices.ContainsFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == name }) {
			delete(e.Roles, name)
		}
		out, err := e.Apply(text)
		if err != nil {
			if fault.Advice(err) == "" && !errors.As(err, new(Errors)) {
				t.Errorf("no advice: %v", err)
			}
			return
		}
		checkEdit(t, text, out, e)
		if i := slices.IndexFunc(c.Spec.Hosts, func(h v1alpha1.Host) bool { return h.Name == host }); !strings.Contains(
			fmt.Sprint(c.Spec.Hosts[i].Address, c.Spec.Hosts[i].InternalAddress, c.Spec.RoleGroups, name, address), "#") { // of no comments
			commentsKept(t, text, out, e)
		}
	})
}
