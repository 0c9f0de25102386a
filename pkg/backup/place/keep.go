package place

import "time"

// Keep says which backups are kept; all zero: all of them.
type Keep struct{ Last, Daily, Weekly, Monthly int }

// Expired returns those of all backups of a cluster (oldest first) that are not kept. Kept are the last Last, and the newest of each of the last Daily days,
// Weekly weeks (ISO 8601) and Monthly months, in UTC, that have one: a day without a backup does not count, as with restic and borg. What
// one rule keeps the others count, too. The newest is always kept.
func (k Keep) Expired(all []Object) []Object {
	if k.Last <= 0 && k.Daily <= 0 && k.Weekly <= 0 && k.Monthly <= 0 {
		return nil
	}
	kept := make([]bool, len(all))
	for _, rule := range []struct {
		left   int
		period func(t time.Time, i int) [2]int
	}{
		{k.Last, func(_ time.Time, i int) [2]int { return [2]int{i} }},
		{k.Daily, func(t time.Time, _ int) [2]int { return [2]int{t.Year(), t.YearDay()} }},
		{k.Weekly, func(t time.Time, _ int) [2]int { y, w := t.ISOWeek(); return [2]int{y, w} }},
		{k.Monthly, func(t time.Time, _ int) [2]int { return [2]int{t.Year(), int(t.Month())} }},
	} {
		last := [2]int{-1} // of no backup
		for i := len(all) - 1; i >= 0 && rule.left > 0; i-- {
			if p := rule.period(all[i].Taken.UTC(), i); p != last {
				last, kept[i] = p, true
				rule.left--
			}
		}
	}
	var expired []Object
	for i, o := range all {
		if !kept[i] {
			expired = append(expired, o)
		}
	}
	return expired
}
