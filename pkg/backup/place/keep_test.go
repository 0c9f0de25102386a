package place_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubexm/kubexm/pkg/backup/place"
)

func TestKeep(t *testing.T) {
	const all = "2025-12-28T01 2025-12-29T01 2026-01-01T01 2026-01-04T23 2026-01-05T00 2026-02-27T01 2026-02-28T01 2026-02-28T13 2026-02-28T23 2026-03-02T01"
	for name, tt := range map[string]struct {
		keep place.Keep
		all  string
		want string // what is kept
	}{
		"all":                      {place.Keep{}, all, all},
		"none there":               {place.Keep{Last: 1}, "", ""},
		"the last":                 {place.Keep{Last: 2}, all, "2026-02-28T23 2026-03-02T01"},
		"more than there are":      {place.Keep{Last: 99}, all, all},
		"days, not hours":          {place.Keep{Daily: 3}, all, "2026-02-27T01 2026-02-28T23 2026-03-02T01"},
		"ISO weeks over new year":  {place.Keep{Weekly: 5}, all, "2025-12-28T01 2026-01-04T23 2026-01-05T00 2026-02-28T23 2026-03-02T01"},
		"months":                   {place.Keep{Monthly: 3}, all, "2026-01-05T00 2026-02-28T23 2026-03-02T01"},
		"each rule for itself":     {place.Keep{Last: 1, Daily: 2, Monthly: 4}, all, "2025-12-29T01 2026-01-05T00 2026-02-28T23 2026-03-02T01"},
		"one is always kept":       {place.Keep{Monthly: 1}, "2026-01-01T01", "2026-01-01T01"},
		"same day of another year": {place.Keep{Daily: 2}, "2025-03-02T01 2026-03-02T01", "2025-03-02T01 2026-03-02T01"},
		"below zero is none":       {place.Keep{Last: -1}, all, all},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []place.Object
			for _, s := range strings.Fields(tt.all) {
				taken, err := time.Parse("2006-01-02T15", s)
				if err != nil {
					t.Fatal(err)
				}
				objects = append(objects, place.Object{Name: s, Taken: taken.In(time.FixedZone("west", -8*3600))}) // it is to count in UTC
			}
			expired := map[string]bool{}
			last := ""
			for _, o := range tt.keep.Expired(objects) {
				if o.Name <= last {
					t.Errorf("%s is not in order", o.Name)
				}
				expired[o.Name], last = true, o.Name
			}
			var kept []string
			for _, o := range objects {
				if !expired[o.Name] {
					kept = append(kept, o.Name)
				}
			}
			if got := strings.Join(kept, " "); got != tt.want {
				t.Errorf("kept %s, want %s", got, tt.want)
			}
		})
	}
}
