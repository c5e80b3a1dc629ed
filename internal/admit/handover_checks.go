package admit

import (
	"maps"
	"time"

	"github.com/fenced/fenced/internal/policy"
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

// CheckName names a check in events.
func CheckName(c *policy.Check) string { return checkID(c.ID()) }
