package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/order"
)

// What a person hears of a stop says whose it is, how long it binds, and what still does.
func TestStopsAreAnsweredInASentence(t *testing.T) {
	end := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for want, c := range map[string]struct {
		verb api.Verb
		out  order.Outcome
	}{
		"n-1 is held until 2026-05-01T12:00:00Z":                                                          {api.Hold, order.Outcome{Until: end}},
		"n-1 is held; an earlier stop that ends later stays in force, by ada: disk":                       {api.Hold, order.Outcome{Earlier: "ada: disk"}},
		"paused until 2026-05-01T12:00:00Z; an earlier stop that ends later stays in force, by ada: disk": {api.Pause, order.Outcome{Until: end, Earlier: "ada: disk"}},
		"paused by this daemon alone":                                                                     {api.Pause, order.Outcome{Unsaved: "paused by this daemon alone"}},
		"resumed, but fencing is still stopped: cluster c is paused":                                      {api.Resume, order.Outcome{Still: "cluster c is paused"}},
		"n-1 is no longer held":                                                                           {api.Release, order.Outcome{}},
		"n-1 is released from quarantine":                                                                 {api.Release, order.Outcome{Quarantine: true}},
		"n-1 is no longer held, but still in quarantine: restless; release it again to end that too":      {api.Release, order.Outcome{Still: "in quarantine: restless"}},
		"run r-1 is closed, and its host stays as it is":                                                  {api.Abort, order.Outcome{}},
		"record r-1 is given up: fenced looks no more after Reboot ns/n-1; if that object exists, nobody else acts on its target until you have deleted it": {api.Abort, order.Outcome{Asked: "Reboot ns/n-1"}},
		"disarmed: fenced begins no run by itself; open runs go on":                                                                                         {api.Disarm, order.Outcome{}},
		"cluster c is not armed: nothing changed":                                                                                                           {api.Disarm, order.Outcome{Unchanged: "cluster c is not armed"}},
	} {
		assert.Equal(t, want, orders[c.verb].outcome(api.Order{Verb: c.verb, Node: "n-1", Run: "r-1", AsIs: true}, c.out))
	}
}

// TestEveryVerbIsCarriedOut: a verb that the socket takes has somebody who does it.
func TestEveryVerbIsCarriedOut(t *testing.T) {
	elsewhere := []api.Verb{api.TestBMC, api.AuditBMC, api.EnrollBMC, api.LogLevel, api.Reload} // hosts.go, control.setLogLevel, reload.go
	for _, v := range api.Verbs() {
		row, known := orders[v]
		assert.Equal(t, !slices.Contains(elsewhere, v), known, v)
		if known {
			assert.NotNil(t, row.give, v)
			assert.NotNil(t, row.outcome, v)
		}
	}
}
