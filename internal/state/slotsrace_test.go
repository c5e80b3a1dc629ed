package state_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
)

// listHook is a store that calls after between a List and the next request.
type listHook struct {
	state.Store
	after func()
}

func (l *listHook) List(ctx context.Context, k state.Kind) ([]state.Record, error) {
	list, err := l.Store.List(ctx, k)
	if f := l.after; f != nil {
		l.after = nil
		f()
	}
	return list, err
}

// Two instances ask for the last slot at the same time, while a run that a person ordered has
// a key above the limit. // I11
func TestLastSlotBesideOneAboveTheLimit(t *testing.T) {
	s := openStore(t)
	require.True(t, take(t, s, 2, "a"))
	require.True(t, take(t, s, 2, "b"))
	require.True(t, take(t, s, 9999, "by hand"))
	require.NoError(t, statetest.FreeSlot(t.Context(), s, "a"))
	require.NoError(t, statetest.FreeSlot(t.Context(), s, "b"))
	second := &listHook{Store: s, after: func() { require.True(t, take(t, s, 2, "first")) }}
	ok, err := statetest.TakeSlot(t.Context(), second, 2, state.Slot{Cluster: "d", Run: "second"})
	require.NoError(t, err)
	assert.False(t, ok, "two are taken")
	slots, err := state.LoadSlots(t.Context(), s)
	require.NoError(t, err)
	assert.Len(t, slots, 2, "of a limit of 2")
}

// Another instance takes the last slots, one of them above the limit, while several are taken
// here. // I11
func TestLastSlotsTakenTogether(t *testing.T) {
	s := openStore(t)
	second := &listHook{Store: s, after: func() {
		require.True(t, take(t, s, 9999, "by hand")) // the key that is planned for the first one here
		require.True(t, take(t, s, 3, "elsewhere"))
	}}
	got := state.TakeSlots(t.Context(), second, requests(3, "a", "b", "c"))
	has := 0
	for _, r := range got {
		require.NoError(t, r.Err)
		if r.Has {
			has++
		}
	}
	assert.Equal(t, 1, has)
	slots, err := state.LoadSlots(t.Context(), s)
	require.NoError(t, err)
	assert.Len(t, slots, 3, "of a limit of 3")
}
