package remediate

import (
	"hash/maphash"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/reason"
)

// What a record must show before anybody may rely on it that fenced switches the host no more. // I22
func TestSettled(t *testing.T) {
	order := &Order{Actor: "ann", At: noon}
	through := func(steps ...Step) []Visit {
		var list []Visit
		for _, s := range steps {
			list = append(list, Visit{Step: s})
		}
		return list
	}
	skipped := func(then ...Step) []Visit {
		return append([]Visit{{Step: PowerOff}, {Step: DeleteNode}, {Step: PowerOn, Note: "power level 1 cannot be used (Auth): skipped"}}, through(then...)...)
	}
	withdrawn := &Wait{Since: ago(time.Minute), Code: reason.Withdrawn, Count: 1}
	isolated := Run{Step: Waiting, Attempt: 1, Intervened: true, Isolated: ago(time.Hour), Reason: reason.Withdrawn, Wait: withdrawn,
		Steps: through(PowerOff, DeleteNode, PowerOn, AwaitNode, Waiting)}
	with := func(r Run, change func(*Run)) Run { change(&r); return r }
	abandoned := func(code, left reason.Code) Run {
		r := Run{Step: Waiting, Attempt: 2, Intervened: true, Reason: left, Wait: withdrawn,
			Steps: through(PowerOff, DeleteNode, PowerOn, AwaitNode, PowerOff, PowerOn, Waiting)}
		r.Steps[4].Note, r.Steps[5].Note = leftFor(code, "why"), leftFor(left, "why")
		return r
	}
	for name, c := range map[string]struct {
		r    Run
		want bool
	}{
		"Done":                              {Run{Step: Done}, true},
		"Aborted":                           {Run{Step: Aborted, Intervened: true}, true},
		"replaced":                          {Run{Step: Reprovisioned}, true},
		"begun":                             {Run{Step: PowerOff, Attempt: 1}, false},
		"going back to On":                  {Run{Step: PowerOn, Attempt: 1, Intervened: true, Abandon: reason.Contested}, false},
		"On, and its Node is awaited":       {Run{Step: AwaitNode, Attempt: 1, OnSeen: noon}, false},
		"its Node is restored":              {Run{Step: RestoreNode, Attempt: 1, OnSeen: noon}, false},
		"the Machine is being deleted":      {Run{Step: Reprovision, Attempt: 1}, false},
		"Held, never touched":               {Run{Step: Held, Attempt: 1}, true},
		"Held after an Off":                 {Run{Step: Held, Attempt: 1, Intervened: true, Steps: through(PowerOff, Held)}, false},
		"Held after an Off, abandoned":      {Run{Step: Held, Attempt: 1, Intervened: true, Steps: through(PowerOff, PowerOn, Held)}, false},
		"Held after an Off, and healthy":    {Run{Step: Held, Attempt: 1, Intervened: true, HealthySince: noon}, true},
		"Held, left off on purpose":         {Run{Step: Held, Attempt: 1, Isolated: noon, LeaveOff: true, Steps: through(PowerOff, DeleteNode, Held)}, false},
		"Held, and the Node did not return": {with(isolated, func(r *Run) { r.Step, r.Reason, r.Wait = Held, reason.AttemptsExhausted, nil }), true},
		"Held, only its outlets read On":    {with(isolated, func(r *Run) { r.Step, r.Steps = Held, skipped(AwaitNode, Held) }), false},
		"Held, and its Node has shown it":   {with(isolated, func(r *Run) { r.Step, r.Steps = Held, skipped(AwaitNode, RestoreNode, Held) }), true},
		"Held, switched off by its owner":   {with(isolated, func(r *Run) { r.Step, r.Reason, r.Wait = Held, reason.PowerForbidden, nil }), false},
		"Held, never came On":               {with(isolated, func(r *Run) { r.Step, r.Steps = Held, through(PowerOff, DeleteNode, PowerOn, Reprovision, Held) }), false},
		"Held, read Off again":              {with(isolated, func(r *Run) { r.Step, r.Steps = Held, through(PowerOn, AwaitNode, PowerOn, Held) }), false},
		"Held, an outlet must come on":      {with(isolated, func(r *Run) { r.Step, r.Contradicted = Held, []Contradiction{{OnPending: true}} }), false},
		"Held, and a person orders an end":  {Run{Step: Held, Attempt: 1, Abort: order}, false},
		"Held, and a person begins it anew": {Run{Step: Held, Attempt: 1, Retry: order}, false},
		"Held, and a person confirms Off":   {Run{Step: Held, Attempt: 1, Confirmed: order}, false},
		"Waiting, never touched":            {Run{Step: Waiting, Attempt: 1, Reason: reason.OfBMC("Unreachable"), Wait: &Wait{}}, false},
		"rests for nobody, never touched":   {Run{Step: Waiting, Attempt: 1, Reason: reason.Withdrawn, Wait: withdrawn}, true},
		"rests for nobody, was On":          {isolated, true},
		"and begins again":                  {with(isolated, func(r *Run) { r.Wait = &Wait{Due: true} }), false},
		"attempts used up, was On":          {with(isolated, func(r *Run) { r.Reason = reason.AttemptsExhausted }), true},
		"attempts used up, tried again":     {with(isolated, func(r *Run) { r.Reason, r.Wait = reason.AttemptsExhausted, &Wait{Due: true} }), false},
		"attempts used up, never came On": {with(isolated, func(r *Run) {
			r.Reason, r.Steps = reason.AttemptsExhausted, through(PowerOff, DeleteNode, PowerOn, Reprovision, Waiting)
		}), false},
		"a later attempt has not begun": {with(isolated, func(r *Run) {
			r.Attempt, r.Intervened, r.Isolated, r.Steps = 2, false, time.Time{}, through(PowerOff, DeleteNode, PowerOn, AwaitNode, PowerOff, Waiting)
		}), true},
		"a later attempt has begun": {with(isolated, func(r *Run) {
			r.Attempt, r.Isolated, r.Steps = 2, time.Time{}, through(PowerOff, DeleteNode, PowerOn, AwaitNode, PowerOff, Waiting)
		}), false},
		"a later attempt was abandoned":                {abandoned(reason.Withdrawn, reason.Withdrawn), true},
		"a later attempt was abandoned, and stays Off": {abandoned(reason.Withdrawn, reason.PowerOnFailed), false},
		"a later attempt was abandoned, by an outlet":  {with(abandoned(reason.Withdrawn, reason.Withdrawn), func(r *Run) { r.OffLevel = 1 }), false},
	} {
		assert.Equal(t, c.want, c.r.Settled(), name)
	}
}

// In no world without another hand at the power is the host of a settled run off, or switched by the
// run until somebody asks for it again. The search keeps no journal: what is read from that, only
// TestSettled shows. // I22
func TestSettledHostsAreOn(t *testing.T) {
	seen := 0
	for _, v := range slices.Concat(withdrawals, slowBoots, waits) {
		others := slices.ContainsFunc(v.faults, func(f fault) bool { return f == foreignOff || f == lie })
		if others || v.states > 3000 {
			continue
		}
		x := &explorer{v: v, next: Next, seed: maphash.MakeSeed(), seen: map[uint64]int32{}}
		front := []state{{rec: v.run(), w: v.world(), left: int8(v.budget), crash: true}}
		x.nodes = append(x.nodes, node{parent: -1, fine: -1, end: front[0].rec.Step, crash: true})
		for at := int32(0); len(front) > 0; {
			var more []state
			for _, st := range front {
				r := st.rec
				if r.Settled() && r.Step != Reprovisioned && r.Reason != reason.ClosedAsIs {
					seen++
					assert.True(t, st.w.on, "%s: %s %s %+v", v.name, r.Step, r.Reason, r.Steps)
				}
				if !r.Step.Ended() {
					more = x.rounds(st, at, more)
				}
				at++
			}
			front = more
		}
	}
	assert.Greater(t, seen, 100)
}
