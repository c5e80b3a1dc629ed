package remediate

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

const onPendingNote = "an outlet that may feed another machine was switched off and does not read On yet"

// contradictedFor is how long outlets may read Off while a lower level reads On: some
// chassis report Off before the host is off. It is longer than two readings take.
const contradictedFor = resendPower

// Contradiction is a power level that read Off while one below it read On: it may
// feed another machine.
type Contradiction struct {
	Level int       `json:"level"`
	Since time.Time `json:"since"`
	// OnPending: it was sent an Off, and has not read On without contradiction since.
	OnPending bool `json:"owed,omitempty"`
}

// recordContradiction notes a contradiction that this look found. It stays on the record for the
// whole run: such a level is never sent an Off that could change anything. // I8, I20
func recordContradiction(r Run, s Observation, now time.Time) Run {
	if !s.Power.Contradicted || !r.Intervened {
		return r
	}
	i, ours := contradictionIndex(r), r.Level <= r.OffLevel
	switch {
	case i < 0:
		r.Contradicted = append(slices.Clone(r.Contradicted), Contradiction{Level: r.Level, Since: now, OnPending: ours})
	case ours && !r.Contradicted[i].OnPending:
		r = setOnPending(r, i, true)
	}
	return r
}

// contradictionIndex is the index of the present level among the contradicted; -1 if it is none.
func contradictionIndex(r Run) int {
	return slices.IndexFunc(r.Contradicted, func(c Contradiction) bool { return c.Level == r.Level })
}

// onPending says whether the present level must still read On, anyOnPending whether any level
// must. No run ends before, and such a level is never skipped. // I20
func onPending(r Run) bool {
	i := contradictionIndex(r)
	return i >= 0 && r.Contradicted[i].OnPending
}

func anyOnPending(r Run) bool {
	return slices.ContainsFunc(r.Contradicted, func(c Contradiction) bool { return c.OnPending })
}

func setOnPending(r Run, i int, pending bool) Run {
	r.Contradicted = slices.Clone(r.Contradicted) // the caller's record must not change
	r.Contradicted[i].OnPending = pending
	return r
}

// clearOnPending notes that the present level reads On, without contradiction.
func clearOnPending(r Run) Run {
	if i := contradictionIndex(r); i >= 0 && r.Contradicted[i].OnPending {
		return setOnPending(r, i, false)
	}
	return r
}

// levelMiswired says whether the present level has read Off for long enough while a lower
// one read On.
func levelMiswired(r Run, s Observation, now time.Time) bool {
	i := contradictionIndex(r)
	return i >= 0 && s.Power.Contradicted && now.Sub(r.Contradicted[i].Since) >= contradictedFor
}

// offInhibited says whether the present level is sent no Off, because it may feed another
// machine. Where it reads Off already without contradiction, one more Off changes nothing.
func offInhibited(r Run, s Observation) bool {
	return s.Power.Contradicted || contradictionIndex(r) >= 0 && s.Power.State != bmc.Off
}

func miswiredNote(r Run, s Observation) string {
	lower := "a lower level reads On"
	if s.Power.Contradicted {
		lower = s.Power.Raw
	}
	return levelName(r, s) + " reads Off while " + lower + ": it may feed another machine"
}

// offFailed is the reason code and sentence of a level that did not prove the host off
// in time.
func offFailed(r Run, s Observation) (code reason.Code, note string) {
	if s.Power.Contradicted || contradictionIndex(r) >= 0 {
		return reason.OutletContradicted, miswiredNote(r, s)
	}
	return powerReason(s, reason.PowerOffFailed), "the host was not proven off in time; last read: " + powerReadText(s)
}
