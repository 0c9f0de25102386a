// Package human writes numbers and lists as people read them.
package human

import (
	"fmt"
	"strings"
	"time"
)

// Duration is short: 0.4s, 12s, 1m05s, 2h03m.
func Duration(d time.Duration) string {
	switch {
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1fs", max(d, 0).Seconds())
	case d < 59500*time.Millisecond:
		return fmt.Sprintf("%.0fs", d.Seconds())
	}
	d = d.Round(time.Second)
	if d < time.Hour {
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// Count puts a number before a thing, which gets an s unless there is one of it.
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Names lists at most so many names, and says how many more there are.
func Names(names []string, most int) string {
	if len(names) <= most+1 { // the words for one more are as long as its name
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Bytes is short: 999 B, 1.4 GiB.
func Bytes(n int64) string {
	units, value := "BKMGT", float64(n)
	for value >= 1000 && len(units) > 1 {
		units, value = units[1:], value/1024
	}
	if units[0] == 'B' {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %ciB", value, units[0])
}
