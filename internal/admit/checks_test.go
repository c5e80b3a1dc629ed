package admit

import (
	"fmt"
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
		assert.Zero(t, states.reportCrowds(crowd, emit, now))
	}
	require.Len(t, told, 1)
	assert.Equal(t, event.Event{Type: event.CheckChanged, Reason: reason.CheckLimit, Message: "namespace tenant: it has more than 1000 checks"}, told[0])
	assert.Zero(t, states.reportCrowds(nil, emit, now))
	require.Len(t, told, 2)
	assert.Equal(t, event.Event{Type: event.CheckChanged, Message: "namespace tenant: all its checks are evaluated again"}, told[1])
	for range 100 {
		states.reportCrowds(crowd, emit, now)
		states.reportCrowds(nil, emit, now)
	}
	assert.LessOrEqual(t, len(told), tellBurst)
	due := states.reportCrowds(crowd, emit, now)
	require.True(t, due.After(now))
	n := len(told)
	assert.Zero(t, states.reportCrowds(crowd, emit, due), "what is so then is told")
	assert.Len(t, told, n+1)
}

// Whoever creates and deletes checks in one namespace, each with another name, makes fenced write events at a pace, and does
// not delay what is to be told of others. What was not told is one event later, and nothing is kept for it.
func TestChecksThatComeAndGoAreToldAtAPace(t *testing.T) {
	var told []event.Event
	emit := func(ev event.Event) { told = append(told, ev) }
	now, states := time.Now(), newCheckStates()
	check := func(namespace, name string, s policy.State) policy.CheckReport {
		return policy.CheckReport{Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: namespace, Name: name, State: s, Allowed: true}
	}
	prod := check("prod", "workers", policy.StateActive)
	var due time.Time
	for i := range 1000 {
		states.tell([]policy.CheckReport{prod, check("tenant", fmt.Sprint(i), policy.StateInvalid)}, emit, now)
		due = states.tell([]policy.CheckReport{prod}, emit, now)
	}
	assert.Len(t, told, authorBurst, "those that came, and those that went")
	assert.Len(t, states.byID, 1)
	require.True(t, due.After(now))

	told = nil
	states.tell(nil, emit, now)
	require.Len(t, told, 1, "it waits for nobody")
	assert.Equal(t, "check prod/workers is gone: it protects no target any more", told[0].Message)

	told = nil
	assert.Zero(t, states.tell(nil, emit, due), "what is so then is told")
	require.Len(t, told, 1)
	assert.Equal(t, reason.NotCovered, told[0].Reason)
	assert.Equal(t, "MachineHealthCheck of tenant: 975 more are gone: they protect no target any more", told[0].Message)

	assert.NotEmpty(t, states.authors, "it has no new pace at once")
	states.tell(nil, emit, now.Add(time.Hour))
	assert.Empty(t, states.authors)
}

// A namespace that is no longer crowded, or gone, is forgotten as soon as it would have no better pace as a new one.
func TestCrowdsThatAreOverAreForgotten(t *testing.T) {
	now, states := time.Now(), newCheckStates()
	emit := func(event.Event) {}
	crowd := []policy.Crowd{{Namespace: "namespace tenant", Message: "it has more than 1000 checks"}}
	states.reportCrowds(crowd, emit, now)
	states.reportCrowds(nil, emit, now)
	assert.Len(t, states.crowds, 1, "its pace is kept")
	states.reportCrowds(crowd, emit, now.Add(time.Hour))
	assert.Len(t, states.crowds, 1)
	states.reportCrowds(nil, emit, now.Add(time.Hour))
	states.reportCrowds(nil, emit, now.Add(2*time.Hour))
	assert.Empty(t, states.crowds)
}
