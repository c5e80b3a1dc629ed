package policy

import (
	"time"

	"github.com/fenced/fenced/internal/times"
)

// NextCheck is the first instant at which the passage of time changes the report;
// false if no timeout runs.
func (r *Report) NextCheck() (time.Time, bool) {
	var next time.Time
	for i := range r.Checks {
		c := &r.Checks[i]
		next = times.Sooner(next, c.Due)
		for j := range c.Targets {
			next = times.Sooner(next, c.Targets[j].nextChange())
		}
	}
	return next, !next.IsZero()
}
