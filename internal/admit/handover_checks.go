package admit

import (
	"cmp"
	"maps"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

// Makers lists the checks whose requests fenced makes, to look for their templates.
func (h *Handovers) Makers() []policy.Check { return h.book.makers() }

// SetMissing stores why the templates of checks cannot be used, by the mark of the check. These
// checks are Disabled.
func (h *Handovers) SetMissing(why map[string]string, now time.Time) {
	h.disable(now, func() { h.missing = maps.Clone(why) })
}

// SetIgnored stores the checks whose requests nobody begins, by the mark of the check.
func (h *Handovers) SetIgnored(why map[string]string, now time.Time) {
	h.disable(now, func() { h.ignored = maps.Clone(why) })
}

// disable makes a change, tells the ledger, and requests a decision if that changes a check. Two
// goroutines call it: the lock is kept until the ledger knows, so that it has the newer of two changes.
func (h *Handovers) disable(now time.Time, change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	all := map[string]string{}
	maps.Copy(all, h.ignored)
	maps.Copy(all, h.missing)
	if maps.Equal(all, h.disabled) {
		return
	}
	h.disabled = all
	h.book.setDisabled(all, now)
	h.c.Wake()
}

// whyNotAsked says why a check no longer asks for an object from a template on a target, now that
// others were asked and runs have started: its limit, a budget or another check may forbid it. It is
// "" if it still asks. b.mu is held. // I11
func (b handoverBook) whyNotAsked(a candidate, from policy.Template, now time.Time) reason.Code {
	b.applyOpenRuns(now)
	check, code := b.ledger.Check(a.check.ID()), reason.NotUnhealthy
	if check == nil {
		return code
	}
	targets := b.ledger.ActingOn(check.ID(), subjectOf(a.draft.Target), now)
	for i := range targets {
		t := &targets[i]
		switch {
		case targetKey(t) != a.key:
		case t.Acts() && check.HandsOver(t) && *cmp.Or(t.Template, check.Template) == from:
			return ""
		case len(t.Refusals) > 0:
			code = t.Refusals[0]
		}
	}
	return code
}

// CheckName names a check in events.
func CheckName(c *policy.Check) string { return checkID(c.ID()) }
