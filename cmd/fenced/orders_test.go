package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/wire"
)

// What a person hears of a stop says whose it is, how long it binds, and what still does.
func TestStopsAreAnsweredInASentence(t *testing.T) {
	end := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for want, c := range map[string]struct {
		verb wire.Verb
		out  order.Outcome
	}{
		"n-1 is held until 2026-05-01T12:00:00Z":                                                          {wire.Hold, order.Outcome{Until: end}},
		"n-1 is held; an earlier stop that ends later stays in force, by ada: disk":                       {wire.Hold, order.Outcome{Earlier: "ada: disk"}},
		"paused until 2026-05-01T12:00:00Z; an earlier stop that ends later stays in force, by ada: disk": {wire.Pause, order.Outcome{Until: end, Earlier: "ada: disk"}},
		"paused by this daemon alone":                                                                     {wire.Pause, order.Outcome{Unsaved: "paused by this daemon alone"}},
		"resumed, but fencing is still stopped: cluster c is paused":                                      {wire.Resume, order.Outcome{Still: "cluster c is paused"}},
		"n-1 is no longer held":                                                                           {wire.Release, order.Outcome{}},
		"n-1 is released from quarantine":                                                                 {wire.Release, order.Outcome{Quarantine: true}},
		"n-1 is no longer held, but still in quarantine: restless; release it again to end that too":      {wire.Release, order.Outcome{Still: "in quarantine: restless"}},
		"run r-1 is closed, and its host stays as it is":                                                  {wire.Abort, order.Outcome{}},
		"record r-1 is given up: fenced looks no more after Reboot ns/n-1; if that object exists, nobody else acts on its target until you have deleted it": {wire.Abort, order.Outcome{Asked: "Reboot ns/n-1"}},
		"disarmed: fenced begins no run by itself; open runs go on":                                                                                         {wire.Disarm, order.Outcome{}},
		"cluster c is not armed: nothing changed":                                                                                                           {wire.Disarm, order.Outcome{Unchanged: "cluster c is not armed"}},
	} {
		assert.Equal(t, want, orders[c.verb].outcome(wire.Order{Verb: c.verb, Node: "n-1", Run: "r-1", AsIs: true}, c.out))
	}
}

// TestEveryVerbIsCarriedOut: a verb that the socket takes has somebody who does it.
func TestEveryVerbIsCarriedOut(t *testing.T) {
	elsewhere := []wire.Verb{wire.TestBMC, wire.AuditBMC, wire.EnrollBMC, wire.LogLevel, wire.Reload} // hosts.go, control.setLogLevel, reload.go
	for _, r := range wire.Verbs {
		v := r.Name
		row, known := orders[v]
		assert.Equal(t, !slices.Contains(elsewhere, v), known, v)
		if known {
			assert.NotNil(t, row.give, v)
			assert.NotNil(t, row.outcome, v)
		}
	}
}
