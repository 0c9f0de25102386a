// Package engine executes an ExecutionGraph: any graph, on any hosts. It knows
// nothing of Kubernetes.
package engine

import (
	"time"

	"github.com/kubexm/kubexm/pkg/plan"
)

// Status is what an event says of a node.
type Status string

// Statuses. Each node ends in exactly one of OK, Changed, Pending, Failed and
// Skipped; Restored may follow when its change was rolled back, with an Error when
// that did not work.
const (
	Started  Status = "started"
	Progress Status = "progress" // how far a long step is, in Text
	Retry    Status = "retry"    // failed in a way that trying again may cure
	OK       Status = "ok"       // nothing to change
	Changed  Status = "changed"  // changed and verified
	Pending  Status = "pending"  // would change (dry run)
	Failed   Status = "failed"   //
	Skipped  Status = "skipped"  // something before it failed, or the run was stopped
	Restored Status = "restored" // rolled back
)

// Event reports a node. Progress, journal, log and API are made of events.
type Event struct {
	Seq      int64         `json:"seq,omitempty"` // 1, 2, 3... in its run
	Time     time.Time     `json:"time"`
	Node     plan.ID       `json:"node"`
	Task     string        `json:"task"`
	Host     string        `json:"host"`
	What     string        `json:"what"`
	Status   Status        `json:"status"`
	Duration time.Duration `json:"duration,omitempty"` // since Started, nanoseconds
	Text     string        `json:"text,omitempty"`
	Diff     string        `json:"diff,omitempty"`
	Later    bool          `json:"later,omitempty"`    // of a dry run: the diff is not known until the steps before have run
	Restarts []string      `json:"restarts,omitempty"` // services and static pods that run, and are restarted by the change
	Error    string        `json:"error,omitempty"`
	Advice   string        `json:"advice,omitempty"`
	Missed   int           `json:"missed,omitempty"` // events before this one that a slow Subscriber did not get

	apart bool // see step.Change
}

// Summary counts how nodes ended.
type Summary struct {
	Total       int  `json:"total"`
	OK          int  `json:"ok"`
	Changed     int  `json:"changed"`
	Pending     int  `json:"pending"`
	Failed      int  `json:"failed"`
	Skipped     int  `json:"skipped"`
	Restored    int  `json:"restored"`
	Interrupted bool `json:"interrupted"` // stopped by the user before all was tried
}

func (s *Summary) count(ev Event) {
	switch ev.Status {
	case OK:
		s.OK++
	case Changed:
		s.Changed++
	case Pending:
		s.Pending++
	case Failed:
		s.Failed++
	case Skipped:
		s.Skipped++
	case Restored:
		if ev.Error == "" {
			s.Restored++
		}
	case Started, Progress, Retry:
	}
}
