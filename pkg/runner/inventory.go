package runner

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// InventoryPath is the file in which a host lists what kubexm made on it.
const InventoryPath = StateDir + "/inventory"

// inventoryVersion is that of the form of the file. A host with another form of it is taken for one
// that has none.
const inventoryVersion = 1

// inventoryFile is the form of the file.
type inventoryFile struct {
	Version int      `json:"version"`
	Owns    []string `json:"owns"`
}

// Inventory returns the content of the file for a host that owes these keys to kubexm: lines of the
// ledger without what was there before, as "path /etc/haproxy/haproxy.cfg" or "sysctl vm/panic_on_oom". In a path, * ? and [
// stand for letters of its last part, as in path.Match.
func Inventory(keys []string) ([]byte, error) {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	text, err := json.MarshalIndent(inventoryFile{inventoryVersion, slices.Compact(keys)}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("writing the inventory: %w", err)
	}
	return append(text, '\n'), nil
}

// inventory reads the lines of the file, or those of the ledger of a host that an earlier release has worked on. Packages in a ledger are also
// those that others brought along: which they are is not known, so they are left out.
func inventory(file, ledger []string) (keys []string) {
	var have inventoryFile
	if json.Unmarshal([]byte(strings.Join(file, "\n")), &have) == nil && have.Version == inventoryVersion {
		return have.Owns
	}
	for _, l := range ledger {
		if key := Key(l); !strings.HasPrefix(key, "package ") {
			keys = append(keys, key)
		}
	}
	return keys
}

// Key is a line of the ledger without what was there before: of a kernel parameter its value, of a directory its permissions and its owner.
func Key(line string) string {
	verb, value, _ := strings.Cut(line, " ")
	switch verb {
	case "sysctl":
		value, _, _ = strings.Cut(value, " ")
	case "mode":
		value, _, _ = strings.Cut(value, "\t")
	}
	return verb + " " + value
}

// Covers reports whether one key stands for another.
func Covers(key, other string) bool {
	if key == other {
		return true
	}
	match, err := path.Match(key, other) // both begin with a verb
	return err == nil && match
}
