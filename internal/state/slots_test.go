package state_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/test/must"
)

func take(t *testing.T, s state.Store, limit int, run string) bool {
	t.Helper()
	return must.Do(statetest.TakeSlot(t.Context(), s, limit, state.Slot{Cluster: "c", Run: run}))(t)
}

func TestSlotsAreLimited(t *testing.T) {
	s := openStore(t)
	require.True(t, take(t, s, 2, "a"))
	require.True(t, take(t, s, 2, "b"))
	require.False(t, take(t, s, 2, "c"))
	require.True(t, take(t, s, 2, "a"), "it has one already")
	slots := must.Do(state.LoadSlots(t.Context(), s))(t)
	require.Len(t, slots, 2, "asking again takes no second one")

	require.NoError(t, statetest.FreeSlot(t.Context(), s, "a"))
	require.NoError(t, statetest.FreeSlot(t.Context(), s, "a"), "freeing again")
	require.True(t, take(t, s, 2, "c"))
	require.False(t, take(t, s, 2, "a"))
}

func TestSlotsOfALoweredLimit(t *testing.T) {
	s := openStore(t)
	for _, run := range []string{"a", "b", "c"} {
		require.True(t, take(t, s, 3, run))
	}
	require.NoError(t, statetest.FreeSlot(t.Context(), s, "a"))
	require.False(t, take(t, s, 2, "d"), "a low key is free, and two slots are taken")
	require.False(t, take(t, s, 0, "d"))
	_, err := statetest.TakeSlot(t.Context(), s, 2, state.Slot{Cluster: "c"})
	require.Error(t, err, "no run")
}

func TestSlotsUnderContention(t *testing.T) {
	s := openStore(t)
	const limit = 3
	var inFlight atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			run := fmt.Sprint("r", i)
			for range 20 {
				ok, err := statetest.TakeSlot(t.Context(), s, limit, state.Slot{Cluster: "c", Run: run})
				if !assert.NoError(t, err) || !ok {
					continue
				}
				assert.LessOrEqual(t, inFlight.Add(1), int64(limit))
				_, err = state.LoadSlots(t.Context(), s) // the others try in the meantime
				assert.NoError(t, err)
				inFlight.Add(-1)
				assert.NoError(t, statetest.FreeSlot(t.Context(), s, run))
			}
		})
	}
	wg.Wait()
}

func requests(limit int, runs ...string) (list []state.SlotRequest) {
	for _, run := range runs {
		list = append(list, state.SlotRequest{Holder: state.Slot{Cluster: "c", Run: run}, Limit: limit})
	}
	return list
}

// Slots that are taken together keep to the limit, and the first to ask get them. // I11
func TestSlotsTakenTogetherAreLimited(t *testing.T) {
	s := openStore(t)
	require.True(t, take(t, s, 3, "a"))
	asked := requests(3, "b", "a", "", "c", "c", "d", "e")
	got := state.TakeSlots(t.Context(), s, asked)
	var has []string
	for i, r := range got {
		if asked[i].Holder.Run == "" {
			require.ErrorContains(t, r.Err, "no ID")
			continue
		}
		require.NoError(t, r.Err, i)
		if r.Has {
			has = append(has, asked[i].Holder.Run)
		}
	}
	require.Equal(t, []string{"b", "a", "c", "c"}, has)
	slots := must.Do(state.LoadSlots(t.Context(), s))(t)
	require.Len(t, slots, 3, "a run that asks twice takes one")

	freed := must.Do(state.FreeSlots(t.Context(), s, []string{"a", "b", "never seen"}))(t)
	require.Equal(t, []string{"a", "b", "never seen"}, freed)
	slots = must.Do(state.LoadSlots(t.Context(), s))(t)
	require.Len(t, slots, 1)
	for i, r := range state.TakeSlots(t.Context(), s, append(requests(3, "d", "e"), requests(9999, "by hand")...)) {
		require.NoError(t, r.Err)
		require.Equal(t, i != 1, r.Has, "one above the limit counts, too")
	}
}

// A slot that cannot be read stays taken: to free it by mistake would let one run too many
// start. // I11
func TestSlotsTakenTogetherBesideAnUnreadableOne(t *testing.T) {
	s := openStore(t)
	must.Do(s.Put(t.Context(), state.Record{Kind: state.KindSlot, Key: "0001", Data: []byte("?")}))(t)
	for i, r := range state.TakeSlots(t.Context(), s, requests(2, "a", "b")) {
		require.Equal(t, state.SlotResult{Has: i == 0}, r)
	}
	freed, err := state.FreeSlots(t.Context(), s, []string{"a", "b"})
	require.ErrorContains(t, err, `"b"`, "it may be the one that cannot be read")
	require.Equal(t, []string{"a"}, freed)
}

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
	ok := must.Do(statetest.TakeSlot(t.Context(), second, 2, state.Slot{Cluster: "d", Run: "second"}))(t)
	assert.False(t, ok, "two are taken")
	slots := must.Do(state.LoadSlots(t.Context(), s))(t)
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
	slots := must.Do(state.LoadSlots(t.Context(), s))(t)
	assert.Len(t, slots, 3, "of a limit of 3")
}
