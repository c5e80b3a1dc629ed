package admit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

// That a namespace has more checks than are evaluated is told once, and that it is over. A namespace that alternates does not fill the log.
func TestTooManyChecksAreToldOnce(t *testing.T) {
	var told []event.Event
	emit := func(ev event.Event) { told = append(told, ev) }
	now, states := time.Now(), newCheckStates()
	crowd := []policy.Crowd{{Namespace: "namespace tenant", Message: "it has more than 1000 checks"}}
	for range 3 {
		assert.Zero(t, states.tellCrowds(crowd, emit, now))
	}
	require.Len(t, told, 1)
	assert.Equal(t, event.Event{Type: event.CheckChanged, Reason: reason.CheckLimit, Message: "namespace tenant: it has more than 1000 checks"}, told[0])
	assert.Zero(t, states.tellCrowds(nil, emit, now))
	require.Len(t, told, 2)
	assert.Equal(t, event.Event{Type: event.CheckChanged, Message: "namespace tenant: all its checks are evaluated again"}, told[1])
	for range 100 {
		states.tellCrowds(crowd, emit, now)
		states.tellCrowds(nil, emit, now)
	}
	assert.LessOrEqual(t, len(told), tellBurst)
	due := states.tellCrowds(crowd, emit, now)
	require.True(t, due.After(now))
	n := len(told)
	assert.Zero(t, states.tellCrowds(crowd, emit, due), "what is so then is told")
	assert.Len(t, told, n+1)
}
