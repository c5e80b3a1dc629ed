package main

import (
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
		"n-1 is held until 2026-05-01T12:00:00Z":                                                         {api.Hold, order.Outcome{Until: end}},
		"n-1 is held; what stood before ends no earlier and goes on, by ada: disk":                       {api.Hold, order.Outcome{Earlier: "ada: disk"}},
		"paused until 2026-05-01T12:00:00Z; what stood before ends no earlier and goes on, by ada: disk": {api.Pause, order.Outcome{Until: end, Earlier: "ada: disk"}},
		"paused by this daemon alone":                                                                    {api.Pause, order.Outcome{Unsaved: "paused by this daemon alone"}},
		"resumed, and still: cluster c is paused":                                                        {api.Resume, order.Outcome{Still: "cluster c is paused"}},
		"n-1 is held no more":                                                                            {api.Release, order.Outcome{}},
		"n-1 is released from the quarantine":                                                            {api.Release, order.Outcome{Quarantine: true}},
		"n-1 is held no more, and still in quarantine: restless (release it once more to end that, too)": {api.Release, order.Outcome{Still: "in quarantine: restless"}},
	} {
		assert.Equal(t, want, control{}.outcome(t.Context(), api.Order{Verb: c.verb, Node: "n-1"}, order.Order{}, c.out))
	}
}
